// SPDX-License-Identifier: Apache-2.0
#include "tetrad/http/server.h"

#include <fmt/chrono.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>

namespace tetrad {
namespace {

using http::Clock;
using http::kTick;
using std::chrono::milliseconds;

/// The client has closed the connection, or the server stops: no answer is wanted.
struct Closed {};

std::string_view reason_of(int status) {
  constexpr std::pair<int, std::string_view> kReasons[] = {{200, "OK"},
                                                           {400, "Bad Request"},
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

std::tm now() { return fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())); }

/// A line of the log. The path is visible ASCII: the parser saw to that.
std::string log_line(const std::string& peer, const HttpRequest* request, const HttpResponse& response,
                     Clock::duration took) {
  constexpr std::size_t kShown = 200;
  const std::string what = request != nullptr ? fmt::format("{} {}", request->method.substr(0, kShown),
                                                            request->path.substr(0, kShown))
                                              : "-";
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ} {} {} {} {} bytes {:.3f} s{}{}", now(), peer, what,
                     response.status, response.body.size(), std::chrono::duration<double>(took).count(),
                     response.note.empty() ? "" : ": ", response.note);
}

/// Status line and headers; `framing` is the header that says where the body ends, if one does.
std::string head_of(const HttpResponse& response, const std::string& framing, bool keep_alive) {
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nContent-Type: {}\r\n{}Connection: {}\r\n",
      response.status, reason_of(response.status), now(), response.content_type, framing,
      keep_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  return head + "\r\n";
}

}  // namespace

HttpServer::HttpServer(ServerOptions options)
    : options_(std::move(options)), listener_(http::listen_on(options_.address)) {}

std::string HttpServer::url() const {
  const std::string& host = options_.address.host;
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("http://[{}]:{}", host, port()) : fmt::format("http://{}:{}", host, port());
}

void HttpServer::run(HttpHandler& handler, const std::function<bool()>& stop, const Ending& ending) {
  struct AtTheEnd {
    HttpServer& server;
    ~AtTheEnd() { server.cut_off(); }
  } const at_the_end{*this};
  handler_ = &handler;
  const int listener = listener_.socket.get();
  while (!stop()) {
    reap();
    if (http::wait_for(listener, POLLIN, Clock::now() + kTick)) accept_one();
  }
  // Whoever came before the signal is answered.
  for (int i = 0; i < http::kWaiting && http::wait_for(listener, POLLIN, Clock::now()); ++i) accept_one();
  stopping_ = true;
  { const FileDescriptor closed = std::move(listener_.socket); }
  if (drain(ending.grace) || !ending.give_up) return;
  constexpr milliseconds kLastWords{1000};
  ending.give_up();
  drain(kLastWords);
}

void HttpServer::cut_off() {
  stopping_ = true;
  for (Connection& connection : connections_) {
    ::shutdown(connection.socket.get(), SHUT_RDWR);
    connection.thread.join();
  }
  connections_.clear();
}

/// Waits until no connection is left; false if that takes longer.
bool HttpServer::drain(milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  for (reap(); !connections_.empty(); reap()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

void HttpServer::reap() {
  connections_.remove_if([](Connection& connection) {
    const bool is_done = connection.done;
    if (is_done) connection.thread.join();
    return is_done;
  });
}

void HttpServer::accept_one() {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  FileDescriptor socket(
      ::accept4(listener_.socket.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC));
  if (!socket.is_open()) {
    // Too many open files: the connection stays in the queue, and asking again at once would be of no use.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) std::this_thread::sleep_for(kTick);
    return;
  }
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  reap();
  // Some more than are served, so that those too many hear of it; what comes beyond them is closed at once.
  constexpr std::size_t kRefused = 16;
  const auto places = static_cast<std::size_t>(options_.connections);
  if (connections_.size() >= places + kRefused) return;
  const auto taken = std::ranges::count_if(connections_, &Connection::is_welcome);
  Connection& connection = connections_.emplace_back();
  connection.is_welcome = taken < options_.connections;
  connection.socket = std::move(socket);
  connection.peer = http::peer_name(address, size);
  try {
    connection.thread = std::thread([this, &connection] { serve(connection); });
  } catch (const std::system_error&) {
    connections_.pop_back();
  }
}

void HttpServer::log(const std::string& line) const {
  try {
    handler_->log(line);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): for example a full disk; there is no one
                                     // to report it to
  }
}

void HttpServer::serve(Connection& connection) {
  const int socket = connection.socket.get();
  try {
    std::string buffer;  // bytes that belong to the next request
    if (connection.is_welcome)
      while (serve_one(connection, buffer)) continue;
    else
      refuse(connection);
    http::close_gently(socket);
  } catch (const Closed&) {  // NOLINT(bugprone-empty-catch): that is all
  } catch (const std::exception& error) {
    log(fmt::format("connection with {} lost: {}", connection.peer, error.what()));
  }
  ::shutdown(socket, SHUT_RDWR);
  connection.done = true;
}

void HttpServer::refuse(Connection& connection) {
  HttpResponse response = handler_->describe(
      HttpError(503, fmt::format("all {} connections are taken; try again later", options_.connections)));
  send_response(connection.socket.get(), nullptr, response, false);
  log(log_line(connection.peer, nullptr, response, Clock::duration::zero()));
}

/// Whether the connection stays open.
bool HttpServer::serve_one(Connection& connection, std::string& buffer) {
  const int socket = connection.socket.get();
  RequestParser parser(options_.limits);
  const HttpRequest* request = nullptr;
  HttpResponse response;
  Clock::time_point begin;
  try {
    if (!receive(socket, parser, buffer)) throw Closed();
    begin = Clock::now();
    request = &parser.request();
    response = answer(*request, socket);
  } catch (const HttpError& error) {
    begin = Clock::now();
    response = handler_->describe(error);
  }
  const bool ends_itself = !response.stream || (request != nullptr && request->http_1_1);
  const bool keep_alive = request != nullptr && request->keep_alive && ends_itself && !stopping_;
  const bool is_sent = response.stream ? send_stream(socket, *request, response, keep_alive)
                                       : send_response(socket, request, response, keep_alive);
  log(log_line(connection.peer, request, response, Clock::now() - begin));
  if (!is_sent) throw Closed();
  return keep_alive;
}

/// Reads until the request is complete; `buffer` keeps what comes after it. False if nothing came.
bool HttpServer::receive(int socket, RequestParser& parser, std::string& buffer) {
  Clock::time_point deadline = Clock::now() + options_.idle_timeout;
  bool told_to_continue = false;
  std::array<char, 65536> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by recv
  while (true) {
    const bool had_started = parser.started();
    buffer.erase(0, parser.feed(buffer));
    if (parser.complete()) return true;
    if (parser.started() && !had_started) deadline = Clock::now() + options_.request_timeout;
    if (parser.head_complete() && parser.request().expects_continue && !told_to_continue) {
      http::send_all(socket, "HTTP/1.1 100 Continue\r\n\r\n", deadline);
      told_to_continue = true;
    }
    // A request that has begun is waited for, as long as its client has time.
    if (stopping_ && !parser.started() && !http::wait_for(socket, POLLIN, Clock::now())) return false;
    if (Clock::now() >= deadline) {
      if (!parser.started()) return false;
      throw HttpError(408, fmt::format("the request did not arrive within {} s",
                                       std::chrono::duration<double>(options_.request_timeout).count()));
    }
    if (!http::wait_for(socket, POLLIN, deadline)) continue;
    const ssize_t count = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0)
      buffer.append(bytes.data(), static_cast<std::size_t>(count));
    else if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
      return false;
  }
}

/// Where only this machine is let in, pages of other machines are not either: a browser here would ask for
/// them, if their name was made to point at this machine.
void HttpServer::check_host(const HttpRequest& request) const {
  const auto host = request.header("host");
  if (listener_.is_loopback && host && !names_loopback(*host))
    throw HttpError(403, "only requests to localhost are answered here, and the Host header names another");
}

HttpResponse HttpServer::answer(const HttpRequest& request, int socket) const {
  try {
    check_host(request);
    const IsGone is_gone = [socket] { return http::has_hung_up(socket); };
    if (request.method != "HEAD") return handler_->answer(request, is_gone);
    HttpRequest as_get = request;
    as_get.method = "GET";
    return handler_->answer(as_get, is_gone);
  } catch (const HttpError& error) {
    return handler_->describe(error);
  } catch (const std::bad_alloc&) {
    return handler_->describe(HttpError(503, "out of memory; send less at a time"));
  } catch (const std::exception& error) {
    return handler_->describe(HttpError(500, error.what()));
  }
}

bool HttpServer::send_response(int socket, const HttpRequest* request, HttpResponse& response,
                               bool keep_alive) const {
  constexpr std::size_t kSlowest = 64;  // bytes per millisecond that a client has to read at
  std::string text =
      head_of(response, fmt::format("Content-Length: {}\r\n", response.body.size()), keep_alive);
  if (request == nullptr || request->method != "HEAD") text += response.body;
  const auto extra = milliseconds(text.size() / kSlowest);
  return http::send_all(socket, text, Clock::now() + options_.request_timeout + extra);
}

/// In chunks, or, to HTTP/1.0, up to the end of the connection. What goes wrong before anything is sent is
/// answered; after that the connection ends, so that nobody takes a part for the whole.
bool HttpServer::send_stream(int socket, const HttpRequest& request, HttpResponse& response,
                             bool keep_alive) const {
  const bool chunked = request.http_1_1;
  bool begun = false;
  const auto send = [&](std::string_view bytes) {
    const std::string head =
        begun ? "" : head_of(response, chunked ? "Transfer-Encoding: chunked\r\n" : "", keep_alive);
    begun = true;
    if (!http::send_all(socket, fmt::format("{}{}", head, bytes), Clock::now() + options_.request_timeout))
      throw Closed();
  };
  const auto write = [&](std::string_view piece) {
    if (piece.empty()) return;  // an empty chunk would be the end
    send(chunked ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : std::string(piece));
  };
  const auto failed = [&](const HttpError& error) {
    response.note = fmt::format("{:?}", std::string_view(error.what()));
    if (begun) return false;
    response = handler_->describe(error);
    return send_response(socket, &request, response, keep_alive);
  };
  try {
    response.note = response.stream(write);
    send(chunked ? "0\r\n\r\n" : "");
    return true;
  } catch (const Closed&) {
    response.note = "the client went away";
    return false;
  } catch (const HttpError& error) {
    return failed(error);
  } catch (const std::exception& error) {
    return failed(HttpError(500, error.what()));
  }
}

}  // namespace tetrad
