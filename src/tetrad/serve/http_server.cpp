#include "tetrad/serve/http_server.h"

#include <fmt/chrono.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

namespace tetrad {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kWaiting = 128;       //!< connections that nobody has accepted yet
constexpr milliseconds kTick{100};  //!< how often a thread that waits looks whether to stop

/// The client has closed the connection, or the server stops: there is nobody to answer.
struct Closed {};

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Internal Server Error";
  }
}

/// Waits for events on a socket, at most until the deadline and no longer than a tick.
bool wait_for(int socket, short events, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  pollfd entry{socket, events, 0};
  return ::poll(&entry, 1, static_cast<int>(std::clamp(left, milliseconds(0), kTick).count())) > 0;
}

/// Whether all bytes were taken in time.
bool send_all(int socket, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return false;
    if (Clock::now() >= deadline) return false;
    wait_for(socket, POLLOUT, deadline);
  }
  return true;
}

/// A connection that is closed while the client still sends is reset, and the client never sees the answer:
/// what it sends is read, and thrown away, for a moment.
void close_gently(int socket) {
  constexpr milliseconds kPatience{1000};
  ::shutdown(socket, SHUT_WR);
  const Clock::time_point deadline = Clock::now() + kPatience;
  std::array<char, 16384> ignored{};
  while (Clock::now() < deadline) {
    if (!wait_for(socket, POLLIN, deadline)) continue;
    if (::recv(socket, ignored.data(), ignored.size(), MSG_DONTWAIT) <= 0) return;
  }
}

bool has_hung_up(int socket) {
  pollfd entry{socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

std::string peer_name(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  const int error = ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
                                  nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host.data() : "?";
}

struct Listener {
  FileDescriptor socket;
  std::uint16_t port = 0;
};

Listener listen_on(const std::string& host, std::uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICHOST;  // nobody is asked what a name means
  addrinfo* found = nullptr;
  const std::string numeric = host == "localhost" ? "127.0.0.1" : host;
  const int error = ::getaddrinfo(numeric.c_str(), std::to_string(port).c_str(), &hints, &found);
  TETRAD_CHECK(error == 0,
               "cannot listen on {:?}: {}; give an address of this machine in numbers with --host", host,
               ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> address(found, ::freeaddrinfo);
  const auto give_up = [&] {
    fail("cannot listen on {} port {}: {}; choose another with --host or --port", host, port,
         std::generic_category().message(errno));
  };
  Listener listener;
  listener.socket =
      FileDescriptor(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.socket.is_open()) give_up();
  const int yes = 1;
  ::setsockopt(listener.socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (::bind(listener.socket.get(), address->ai_addr, address->ai_addrlen) != 0 ||
      ::listen(listener.socket.get(), kWaiting) != 0)
    give_up();
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (::getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) give_up();
  listener.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                    : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  return listener;
}

/// A line of the log. The path is visible ASCII: the parser saw to that.
std::string log_line(const std::string& peer, const HttpRequest* request, const HttpResponse& response,
                     Clock::duration took) {
  constexpr std::size_t kShown = 200;
  const std::string what = request != nullptr ? fmt::format("{} {}", request->method.substr(0, kShown),
                                                            request->path.substr(0, kShown))
                                              : "-";
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ} {} {} {} {} bytes {:.3f} s{}{}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())),
                     peer, what, response.status, response.body.size(),
                     std::chrono::duration<double>(took).count(), response.note.empty() ? "" : ": ",
                     response.note);
}

}  // namespace

HttpResponse error_response(const HttpError& error) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
  };
  const nlohmann::json body = {{"error",
                                {{"message", error.what()},
                                 {"type", error.status() < 500 ? "invalid_request_error" : "server_error"},
                                 {"param", or_null(error.parameter())},
                                 {"code", or_null(error.code())}}}};
  return {error.status(),
          body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
          {},
          fmt::format("{:?}", std::string_view(error.what()))};
}

HttpServer::HttpServer(ServerOptions options, HttpHandler handler, RequestLog log)
    : options_(std::move(options)), handler_(std::move(handler)), log_(std::move(log)) {
  Listener listener = listen_on(options_.host, options_.port);
  listener_ = std::move(listener.socket);
  port_ = listener.port;
}

HttpServer::~HttpServer() {
  stopping_ = true;
  for (Connection& connection : connections_) connection.thread.join();
}

std::string HttpServer::url() const {
  const bool is_v6 = options_.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("http://[{}]:{}", options_.host, port_)
               : fmt::format("http://{}:{}", options_.host, port_);
}

void HttpServer::run(const std::function<bool()>& stop) {
  while (!stop()) {
    reap();
    if (wait_for(listener_.get(), POLLIN, Clock::now() + kTick)) accept_one();
  }
  // Whoever came before the signal is answered.
  for (int i = 0; i < kWaiting && wait_for(listener_.get(), POLLIN, Clock::now()); ++i) accept_one();
  stopping_ = true;
  const FileDescriptor closed = std::move(listener_);
}

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
      ::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC));
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
  connection.peer = peer_name(address, size);
  try {
    connection.thread = std::thread([this, &connection] { serve(connection); });
  } catch (const std::system_error&) {
    connections_.pop_back();
  }
}

void HttpServer::serve(Connection& connection) {
  try {
    std::string buffer;  // bytes that belong to the next request
    if (connection.is_welcome)
      while (serve_one(connection, buffer)) continue;
    else
      refuse(connection);
    close_gently(connection.socket.get());
  } catch (const Closed&) {
  } catch (const std::exception& error) {
    log_(fmt::format("connection with {} lost: {}", connection.peer, error.what()));
  }
  connection.socket = FileDescriptor();
  connection.done = true;
}

void HttpServer::refuse(Connection& connection) {
  const HttpResponse response = error_response(
      HttpError(503, fmt::format("all {} connections are taken; try again later", options_.connections)));
  send_response(connection.socket.get(), response, false);
  log_(log_line(connection.peer, nullptr, response, Clock::duration::zero()));
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
    response = error_response(error);
  }
  if (request != nullptr && request->method == "HEAD") response.body.clear();
  const bool keep_alive = request != nullptr && request->keep_alive && !stopping_;
  const bool is_sent = send_response(socket, response, keep_alive);
  log_(log_line(connection.peer, request, response, Clock::now() - begin));
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
      send_all(socket, "HTTP/1.1 100 Continue\r\n\r\n", deadline);
      told_to_continue = true;
    }
    if (stopping_ && !wait_for(socket, POLLIN, Clock::now())) return false;
    if (Clock::now() >= deadline) {
      if (!parser.started()) return false;
      throw HttpError(408, fmt::format("the request did not arrive within {} s",
                                       std::chrono::duration<double>(options_.request_timeout).count()));
    }
    if (!wait_for(socket, POLLIN, deadline)) continue;
    const ssize_t count = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0)
      buffer.append(bytes.data(), static_cast<std::size_t>(count));
    else if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
      return false;
  }
}

HttpResponse HttpServer::answer(const HttpRequest& request, int socket) const {
  try {
    return handler_(request, [socket] { return has_hung_up(socket); });
  } catch (const HttpError& error) {
    return error_response(error);
  } catch (const std::bad_alloc&) {
    return error_response(HttpError(503, "out of memory; send less at a time"));
  } catch (const std::exception& error) {
    return error_response(HttpError(500, error.what()));
  }
}

bool HttpServer::send_response(int socket, const HttpResponse& response, bool keep_alive) const {
  constexpr std::size_t kSlowest = 64;  // bytes per millisecond that a client has to read at
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: {}\r\n",
      response.status, reason_of(response.status), response.body.size(), keep_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  text += "\r\n";
  text += response.body;
  const auto extra = milliseconds(text.size() / kSlowest);
  return send_all(socket, text, Clock::now() + options_.request_timeout + extra);
}

}  // namespace tetrad
