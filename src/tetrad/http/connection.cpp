// SPDX-License-Identifier: Apache-2.0
#include "tetrad/http/connection.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "tetrad/http/address.h"

namespace tetrad::http {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kRead = kConnectionBytes / 2;  //!< bytes that are taken from a socket at a time

/// The client has closed the connection, or the server stops: no answer is wanted.
struct Closed {};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

/// Sends an answer to a client that may take its time, but not more than is allowed in all: what it does take
/// buys some of it back, at the rate that is expected of it, and never more than there was.
class Connection::Sender {
 public:
  Sender(int socket, milliseconds patience) : socket_(socket), patience_(patience), left_(patience) {}

  /// False if the client did not take it.
  bool send(std::string_view bytes) {
    constexpr std::chrono::microseconds kPerByte{15};  // 67 kB per second
    constexpr std::size_t kPiece = 65536;              // so that time for much is not given for nothing
    do {
      const std::string_view piece = bytes.substr(0, kPiece);
      bytes.remove_prefix(piece.size());
      const Clock::duration expected = kPerByte * piece.size();
      const Clock::time_point begin = Clock::now();
      if (!send_all(socket_, piece, begin + left_ + expected)) return false;
      left_ = std::min(patience_, left_ + expected - (Clock::now() - begin));
    } while (!bytes.empty());
    return true;
  }

  std::size_t body_bytes = 0;  //!< for the log

 private:
  int socket_;
  Clock::duration patience_;
  Clock::duration left_;
};

void Connection::log(const HttpRecord& record) const {
  try {
    common_.handler.log(record);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): for example a full disk; there is no one
                                     // to report it to
  }
}

void Connection::serve() {
  try {
    while (serve_one()) continue;
    close_gently(socket_);
  } catch (const Closed&) {  // NOLINT(bugprone-empty-catch): that is all
  } catch (const std::exception& error) {
    log({.time = std::chrono::system_clock::now(),
         .peer = peer_,
         .note = {fmt::format("connection lost: {}", error.what())}});
  }
}

void Connection::refuse(const HttpError& error) {
  const HttpResponse response = common_.handler.describe(error);
  Sender sender(socket_, options_.send_timeout);
  send_response(sender, true, response, false);
  log({.time = std::chrono::system_clock::now(),
       .peer = peer_,
       .status = response.status,
       .bytes = sender.body_bytes,
       .note = response.note});
  close_gently(socket_);
}

/// Whether the connection stays open.
bool Connection::serve_one() {
  MemoryShare memory(common_.memory);
  const HttpExchange exchange{[socket = socket_] { return has_hung_up(socket); }, memory};
  RequestParser parser(options_.limits);
  const HttpRequest& request = parser.request();
  HttpResponse response;
  Clock::time_point begin;
  bool is_complete = false;
  try {
    if (!receive(parser, memory)) throw Closed();
    begin = Clock::now();
    is_complete = true;
    response = answer(request, exchange);
  } catch (const HttpError& error) {
    begin = Clock::now();
    response = common_.handler.describe(error);
  }
  parser.drop_body();
  if (!response.stream) memory.hold_exactly(response.body.size());
  const bool ends_itself = !response.stream || request.http_1_1;
  const bool keep_alive = is_complete && request.keep_alive && ends_itself && !common_.stopping;
  Sender sender(socket_, options_.send_timeout);
  const bool is_sent = response.stream
                           ? send_stream(sender, request, response, keep_alive)
                           : send_response(sender, request.method != "HEAD", response, keep_alive);
  const bool is_known = parser.head_complete();
  log({.time = std::chrono::system_clock::now(),
       .peer = peer_,
       .method = is_known ? request.method : "",
       .path = is_known ? request.path : "",
       .status = response.status,
       .bytes = sender.body_bytes,
       .seconds = seconds_since(begin),
       .note = response.note});
  if (!is_sent) throw Closed();
  return keep_alive;
}

/// Reads until the request is complete; `buffer_` keeps what comes after it. False if nothing came.
bool Connection::receive(RequestParser& parser, MemoryShare& memory) {
  const Clock::time_point begin = Clock::now();
  Clock::time_point deadline = begin + options_.idle_timeout;
  bool told_to_continue = false;
  std::array<char, kRead> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by recv
  while (true) {
    const bool had_started = parser.started();
    const bool had_head = parser.head_complete();
    buffer_.erase(0, parser.feed(buffer_));
    if (parser.started() && !had_started) deadline = Clock::now() + options_.request_timeout;
    idle_since_ = parser.started() ? 0 : begin.time_since_epoch().count();
    if (parser.head_complete() && !had_head) {
      check_host(parser.request());
      memory_per_byte_ = common_.handler.admit(parser.request());
    }
    // Before the bytes that were announced are read.
    if (parser.head_complete()) memory.reserve(memory_per_byte_ * parser.announced());
    if (parser.complete()) return true;
    if (parser.head_complete() && parser.request().expects_continue && !told_to_continue) {
      send_all(socket_, "HTTP/1.1 100 Continue\r\n\r\n", deadline);
      told_to_continue = true;
    }
    // A request that has begun is waited for, as long as its client has time.
    if (common_.stopping && !parser.started() && !wait_for(socket_, POLLIN, Clock::now())) return false;
    if (Clock::now() >= deadline) {
      if (!parser.started()) return false;
      throw HttpError(408, fmt::format("the request did not arrive within {} s",
                                       std::chrono::duration<double>(options_.request_timeout).count()));
    }
    if (!wait_for(socket_, POLLIN, deadline)) continue;
    const ssize_t count = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0)
      buffer_.append(bytes.data(), static_cast<std::size_t>(count));
    else if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
      return false;
  }
}

/// A page of another machine whose name was made to point at this one has a browser here send that name. No
/// such name is in numbers, and none is localhost.
void Connection::check_host(const HttpRequest& request) const {
  const auto host = request.header("host");
  if (!host || names_loopback(*host)) return;  // HTTP/1.0 needs no Host, and no browser speaks it
  if (!common_.is_loopback && (options_.any_name_from_outside || names_number(*host))) return;
  const bool is_allowed = std::ranges::any_of(options_.allowed_hosts, [&](const std::string& name) {
    return name == "*" || names_host(*host, name);
  });
  if (!is_allowed)
    throw HttpError(403, "the Host header names a machine that is not this one, as far as it was told");
}

HttpResponse Connection::answer(const HttpRequest& request, const HttpExchange& exchange) const {
  const HttpHandler& handler = common_.handler;
  try {
    if (request.method != "HEAD") return common_.handler.answer(request, exchange);
    const HttpRequest as_get{.method = "GET", .path = request.path, .headers = request.headers, .body = {}};
    return common_.handler.answer(as_get, exchange);
  } catch (const HttpError& error) {
    return handler.describe(error);
  } catch (const std::bad_alloc&) {
    return handler.describe(HttpError(503, "out of memory; send less at a time"));
  } catch (const std::exception& error) {
    return handler.describe(HttpError(500, error.what()));
  }
}

/// False if the client did not take it.
bool Connection::send_response(Sender& sender, bool with_body, const HttpResponse& response,
                               bool keep_alive) {
  const std::string framing = fmt::format("Content-Length: {}\r\n", response.body.size());
  if (!sender.send(head_of(response, framing, keep_alive))) return false;
  sender.body_bytes = response.body.size();
  return !with_body || sender.send(response.body);
}

/// In chunks, or, to HTTP/1.0, up to the end of the connection. What goes wrong before anything is sent is
/// answered; after that the connection ends, so that nobody takes a part for the whole.
bool Connection::send_stream(Sender& sender, const HttpRequest& request, HttpResponse& response,
                             bool keep_alive) const {
  const bool chunked = request.http_1_1;
  bool begun = false;
  const auto send = [&](std::string_view bytes) {
    const std::string head =
        begun ? "" : head_of(response, chunked ? "Transfer-Encoding: chunked\r\n" : "", keep_alive);
    begun = true;
    if (!sender.send(fmt::format("{}{}", head, bytes))) throw Closed();
  };
  const auto write = [&](std::string_view piece) {
    if (piece.empty()) return;  // an empty chunk would be the end
    sender.body_bytes += piece.size();
    send(chunked ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : std::string(piece));
  };
  const auto failed = [&](const HttpError& error) {
    response.note = {fmt::format("{:?}", std::string_view(error.what()))};
    if (begun) return false;
    response = common_.handler.describe(error);
    return send_response(sender, true, response, keep_alive);
  };
  try {
    response.note = response.stream(write);
    send(chunked ? "0\r\n\r\n" : "");
    return true;
  } catch (const Closed&) {
    response.note = {"the client went away"};
    return false;
  } catch (const HttpError& error) {
    return failed(error);
  } catch (const std::exception& error) {
    return failed(HttpError(500, error.what()));
  }
}

}  // namespace tetrad::http
