// SPDX-License-Identifier: Apache-2.0
#pragma once
// A request of HTTP/1.1 (RFC 9112), read strictly: what two readers could understand differently is refused.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tetrad/core/error.h"

namespace tetrad {

/// What a client is answered instead of a result.
class HttpError : public Error {
 public:
  HttpError(int status, const std::string& message) : Error(message), status_(status) {}

  int status() const { return status_; }

 private:
  int status_;
};

struct HttpLimits {
  std::size_t head = std::size_t{16} << 10;  //!< bytes of request line, headers, chunk extensions, trailers
  std::size_t headers = 100;
  std::size_t body = std::size_t{4} << 20;  //!< bytes
};

struct HttpRequest {
  std::string method;
  std::string path;                                          //!< begins with '/'; without the query
  std::vector<std::pair<std::string, std::string>> headers;  //!< names in lower case
  std::string body;
  bool http_1_1 = true;           //!< else 1.0
  bool keep_alive = true;         //!< the client would send another request
  bool expects_continue = false;  //!< it waits for leave to send the body

  /// The first of this name, which is given in lower case.
  std::optional<std::string_view> header(std::string_view name) const;
};

/// Takes a request piece by piece. Holds at most what the limits allow, and twice that for a moment.
class RequestParser {
 public:
  explicit RequestParser(const HttpLimits& limits) : limits_(limits) {}

  /// Returns how many of the bytes belong to the request; all of them until it is complete. Throws HttpError
  /// for what is no request; nothing can be read from the connection then.
  std::size_t feed(std::string_view bytes);

  bool started() const { return head_bytes_ > 0; }
  bool head_complete() const { return state_ > State::headers; }
  bool complete() const { return state_ == State::complete; }
  const HttpRequest& request() const { return request_; }
  /// Bytes of the body that have come or were announced; of one in chunks, as far as is known.
  std::size_t announced() const { return request_.body.size() + static_cast<std::size_t>(remaining_); }
  /// Frees the body, which nobody needs any more.
  void drop_body() { std::string().swap(request_.body); }

 private:
  enum class State : std::uint8_t {
    request_line,
    headers,
    body,
    chunk_size,
    chunk,
    chunk_end,
    trailers,
    complete
  };

  std::size_t take_line(std::string_view bytes);
  std::size_t take_data(std::string_view bytes);
  void read_line(std::string_view line);
  void read_request_line(std::string_view line);
  std::pair<std::string, std::string> read_field(std::string_view line);
  void read_chunk_size(std::string_view line);
  void count(std::size_t bytes);
  void finish_head();
  void read_connection();
  void expect_data(std::uint64_t size, State state);
  std::optional<std::string_view> only(std::string_view name) const;

  HttpLimits limits_;
  HttpRequest request_;
  State state_ = State::request_line;
  std::string line_;             //!< as far as it has come
  std::size_t head_bytes_ = 0;   //!< counted against the limit
  std::size_t fields_ = 0;       //!< headers and trailers
  std::uint64_t remaining_ = 0;  //!< bytes of the body, or of this chunk, to come
};

}  // namespace tetrad
