// SPDX-License-Identifier: Apache-2.0
// The service before there is a model, and when it is over.

#include "tetrad/serve/service.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/small_model.h"

namespace tetrad::testing {
namespace {

class Asked {
 public:
  HttpResponse get(const std::string& path) { return ask("GET", path, ""); }
  HttpResponse ask(const std::string& method, const std::string& path, const std::string& body) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    request.headers = {{"content-type", "application/json"}};
    MemoryBudget budget(std::size_t{1} << 30);
    MemoryShare memory(budget);
    try {
      return service.answer(request, {[] { return false; }, memory});
    } catch (const HttpError& error) {
      return service.describe(error);
    }
  }

  Service service{ServiceOptions{.version = "1.2.3", .build = "abc"}};
};

std::string header(const HttpResponse& response, const std::string& name) {
  for (const auto& [key, value] : response.headers)
    if (key == name) return value;
  return {};
}

TEST(Service, IsReadyFromTheModelToTheEnd) {
  Asked asked;
  for (const char* path : {"/ready", "/v1/models", "/tokenizer_info"}) {
    const HttpResponse response = asked.get(path);
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_EQ(header(response, "Retry-After"), "1") << path;
  }
  EXPECT_EQ(asked.ask("POST", "/v1/completions", R"({"prompt": [1]})").status, 503);
  EXPECT_EQ(asked.get("/health").body, R"({"status":"loading"})") << "it lives";
  EXPECT_NE(asked.get("/metrics").body.find("tetrad_serve_ready 0\n"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(asked.get("/version").body),
            (nlohmann::json{{"version", "1.2.3"}, {"build", "abc"}}));
  asked.service.give_up();  // nothing is under way

  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {});
  CompletionContext context;
  context.model = "small";
  context.vocab = 256;
  context.max_length = 100;
  asked.service.open(engine, context);
  EXPECT_EQ(asked.get("/ready").status, 200);
  EXPECT_EQ(asked.get("/health").body, R"({"status":"ok"})");
  EXPECT_EQ(asked.get("/v1/models/small").status, 200);
  EXPECT_EQ(asked.get("/v1/models/large").status, 404);
  EXPECT_EQ(asked.ask("POST", "/v1/completions", R"({"prompt": [1]})").status, 200);
  EXPECT_NE(asked.get("/metrics").body.find("tetrad_serve_ready 1\n"), std::string::npos);

  asked.service.begin_to_stop();
  EXPECT_EQ(asked.get("/ready").status, 503);
  EXPECT_EQ(asked.ask("POST", "/v1/completions", R"({"prompt": [1]})").status, 200)
      << "what comes is answered";
  asked.service.give_up();
  EXPECT_EQ(asked.ask("POST", "/v1/completions", R"({"prompt": [1]})").status, 503);
}

TEST(Service, HasARouteForEveryPath) {
  Asked asked;
  for (const char* path : {"/", "/v1", "/v1/model", "/metrics/", "/v1/chat/completions/x", "/health2"})
    EXPECT_EQ(asked.get(path).status, 404) << path;
  const HttpResponse wrong = asked.get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(header(wrong, "Allow"), "POST");
  EXPECT_EQ(header(asked.ask("POST", "/metrics", ""), "Allow"), "GET, HEAD");
}

}  // namespace
}  // namespace tetrad::testing
