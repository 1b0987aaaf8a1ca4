// SPDX-License-Identifier: Apache-2.0
#include "tetrad/http/response.h"

#include <fmt/chrono.h>

#include <algorithm>

#include "tetrad/core/utc_time.h"

namespace tetrad {
namespace {

std::string_view reason_of(int status) {
  constexpr std::pair<int, std::string_view> kReasons[] = {{200, "OK"},
                                                           {400, "Bad Request"},
                                                           {401, "Unauthorized"},
                                                           {403, "Forbidden"},
                                                           {404, "Not Found"},
                                                           {405, "Method Not Allowed"},
                                                           {408, "Request Timeout"},
                                                           {413, "Content Too Large"},
                                                           {415, "Unsupported Media Type"},
                                                           {417, "Expectation Failed"},
                                                           {431, "Request Header Fields Too Large"},
                                                           {499, "Client Closed Request"},
                                                           {500, "Internal Server Error"},
                                                           {501, "Not Implemented"},
                                                           {503, "Service Unavailable"},
                                                           {505, "HTTP Version Not Supported"}};
  const auto* const found = std::ranges::find(kReasons, status, &std::pair<int, std::string_view>::first);
  return found == std::end(kReasons) ? "" : found->second;
}

std::tm utc(std::chrono::system_clock::time_point time) {
  return fmt::gmtime(std::chrono::system_clock::to_time_t(time));
}

}  // namespace

std::string timestamp(std::chrono::system_clock::time_point time) {
  return utc_time(std::chrono::system_clock::to_time_t(time));
}

std::string text_line(const HttpRecord& record) {
  constexpr std::size_t kShown = 200;
  const std::string what = record.method.empty() ? "-"
                                                 : fmt::format("{} {}", record.method.substr(0, kShown),
                                                               record.path.substr(0, kShown));
  return fmt::format("{} {} {} {} {} bytes {:.3f} s{}{}", timestamp(record.time), record.peer, what,
                     record.status, record.bytes, record.seconds, record.note.text.empty() ? "" : ": ",
                     record.note.text);
}

std::string http::head_of(const HttpResponse& response, const std::string& framing, bool keep_alive) {
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nContent-Type: {}\r\n{}Connection: {}\r\n",
      response.status, reason_of(response.status), utc(std::chrono::system_clock::now()),
      response.content_type, framing, keep_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  return head + "\r\n";
}

}  // namespace tetrad
