// SPDX-License-Identifier: Apache-2.0
// Any bytes are a request, the beginning of one, or refused; whatever pieces they come in.

#include <tuple>

#include "fuzz/targets.h"
#include "tetrad/http/request.h"

namespace tetrad::testing {
namespace {

constexpr HttpLimits kFuzzLimits = {.head = 512, .headers = 8, .body = 256};

/// What becomes of the bytes: the status that refuses them (0: none), how many are the request's, and it.
struct Reading {
  int status = 0;
  std::size_t used = 0;
  bool complete = false;
  HttpRequest request;
};

Reading read(std::string_view bytes, std::size_t piece) {
  Reading reading;
  RequestParser parser(kFuzzLimits);
  try {
    while (reading.used < bytes.size() && !parser.complete()) {
      const std::string_view part = bytes.substr(reading.used, piece);
      const std::size_t used = parser.feed(part);
      require(used == part.size() || (used < part.size() && parser.complete()));
      reading.used += used;
    }
  } catch (const HttpError& error) {
    reading.status = error.status();
    reading.used = 0;
  }
  reading.complete = parser.complete();
  reading.request = parser.request();
  return reading;
}

auto content(const Reading& reading) {
  const HttpRequest& request = reading.request;
  return std::tie(reading.status, reading.used, reading.complete, request.method, request.path,
                  request.headers, request.body, request.http_1_1, request.keep_alive,
                  request.expects_continue);
}

}  // namespace

void fuzz_http_request(std::string_view bytes) {
  const Reading whole = read(bytes, bytes.size() + 1);
  require(whole.request.body.size() <= kFuzzLimits.body &&
          whole.request.headers.size() <= kFuzzLimits.headers);
  require(whole.status == 0 || (whole.status >= 400 && whole.status <= 599));
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}}) {
    const Reading parts = read(bytes, piece);
    // Which of two faults is met first may depend on the pieces; that there is one may not.
    require((parts.status != 0) == (whole.status != 0));
    require(whole.status != 0 || content(parts) == content(whole));
  }
}

}  // namespace tetrad::testing
