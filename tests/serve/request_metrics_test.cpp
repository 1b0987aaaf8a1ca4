// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/request_metrics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tetrad/serve/service.h"

namespace tetrad::testing {
namespace {

HttpRecord record_of(int status, double seconds) {
  HttpRecord record;
  record.time = std::chrono::system_clock::from_time_t(0);
  record.peer = "::1";
  record.method = "POST";
  record.path = "/tokenize";
  record.status = status;
  record.bytes = 7;
  record.seconds = seconds;
  return record;
}

TEST(RequestMetrics, CountsByRouteAndStatus) {
  RequestMetrics metrics;
  Exposition empty("t_");
  metrics.write(empty);
  EXPECT_EQ(empty.take(), "");
  metrics.add("/tokenize", record_of(200, 0.01));
  metrics.add("/tokenize", record_of(200, 0.25));
  metrics.add("/tokenize", record_of(400, 100));
  metrics.add("other", record_of(404, 0));
  Exposition out("t_");
  metrics.write(out);
  const std::string text = out.take();
  for (const char* line : {
           "# TYPE t_requests_total counter\n",
           "t_requests_total{route=\"/tokenize\",status=\"200\"} 2\n",
           "t_requests_total{route=\"/tokenize\",status=\"400\"} 1\n",
           "t_requests_total{route=\"other\",status=\"404\"} 1\n",
           "# TYPE t_request_seconds histogram\n",
           "t_request_seconds_bucket{route=\"/tokenize\",le=\"0.005\"} 0\n",
           "t_request_seconds_bucket{route=\"/tokenize\",le=\"0.02\"} 1\n",
           "t_request_seconds_bucket{route=\"/tokenize\",le=\"60\"} 2\n",
           "t_request_seconds_bucket{route=\"/tokenize\",le=\"+Inf\"} 3\n",
           "t_request_seconds_sum{route=\"/tokenize\"} 100.26\n",
           "t_request_seconds_count{route=\"/tokenize\"} 3\n",
       })
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(JsonLine, SaysWhatHappened) {
  HttpRecord record = record_of(200, 0.5);
  record.note = {"1 sequences, 3 + 4 tokens", {{"prompt_tokens", 3}, {"completion_tokens", 4}}};
  EXPECT_EQ(nlohmann::json::parse(json_line(record, "/tokenize")),
            (nlohmann::json{{"time", "1970-01-01T00:00:00Z"},
                            {"peer", "::1"},
                            {"method", "POST"},
                            {"route", "/tokenize"},
                            {"path", "/tokenize"},
                            {"status", 200},
                            {"bytes", 7},
                            {"seconds", 0.5},
                            {"prompt_tokens", 3},
                            {"completion_tokens", 4},
                            {"note", "1 sequences, 3 + 4 tokens"}}));
  record.note = {"a\nb \xFF"};
  EXPECT_EQ(json_line(record, "other").find('\n'), std::string::npos) << "one line, whatever is in it";
}

}  // namespace
}  // namespace tetrad::testing
