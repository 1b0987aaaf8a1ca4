// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is answered, and what is said about it in a log.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tetrad {

/// Sends a piece of a body; throws if the client is gone, which is to be let through.
using BodyWriter = std::function<void(std::string_view piece)>;

/// For the log.
struct HttpNote {
  std::string text = {};                                          //!< for people
  std::vector<std::pair<std::string, std::int64_t>> counts = {};  //!< for programs, such as tokens
};

struct HttpResponse {
  int status = 200;
  std::string content_type = {};
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  //!< besides those of every response
  HttpNote note = {};
  /// Instead of a body: makes it while it is sent, and returns the note. Until it has written something, it
  /// may throw like a handler.
  std::function<HttpNote(const BodyWriter& write)> stream = {};
};

/// A request that was answered, as far as that went.
struct HttpRecord {
  std::chrono::system_clock::time_point time;  //!< of the answer
  std::string peer;
  std::string method = {};  //!< empty, as is the path: what came was no request
  std::string path = {};    //!< visible ASCII: the parser saw to that
  int status = 0;           //!< 0: the connection was lost
  std::size_t bytes = 0;    //!< of the body
  double seconds = 0;       //!< from the last byte of the request to the last of the answer
  HttpNote note = {};
};

/// 2026-11-16T08:00:00Z
std::string timestamp(std::chrono::system_clock::time_point time);

/// A line of a log for people, without a line feed.
std::string text_line(const HttpRecord& record);

namespace http {

/// Status line and headers; `framing` is the header that says where the body ends, if one does.
std::string head_of(const HttpResponse& response, const std::string& framing, bool keep_alive);

}  // namespace http
}  // namespace tetrad
