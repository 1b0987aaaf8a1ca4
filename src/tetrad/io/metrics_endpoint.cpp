#include "tetrad/io/metrics_endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <system_error>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

std::string escaped(std::string_view text, bool with_quotes) {
  std::string result;
  for (const char c : text) {
    if (c == '\n')
      result += "\\n";
    else if (c == '\\' || (with_quotes && c == '"'))
      result += {'\\', c};
    else
      result += c;
  }
  return result;
}

std::string shown(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

FileDescriptor listen_at(const std::string& address, int port) {
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(port));
  TETRAD_CHECK(
      port >= 0 && port <= 65535 && inet_pton(AF_INET, address.c_str(), &where.sin_addr) == 1,
      "cannot serve metrics at {:?}, port {}: give an address such as 127.0.0.1 and a port up to 65535",
      address, port);
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  const bool good = listener.is_open() &&
                    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                    ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&where), sizeof(where)) == 0 &&
                    ::listen(listener.get(), 16) == 0;
  if (!good) {
    const std::string reason = std::generic_category().message(errno);
    fail("cannot serve metrics at {} port {}: {}; choose another port", address, port, reason);
  }
  return listener;
}

using Clock = std::chrono::steady_clock;

/// The first line of a request, or nothing if it is long or its end has not come by `deadline`.
std::string request_line(int connection, Clock::time_point deadline) {
  constexpr std::size_t kMaxBytes = 4096;
  std::string request;
  std::array<char, 1024> buffer{};
  while (request.size() < kMaxBytes && request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t size = ::recv(connection, buffer.data(), buffer.size(), 0);
    if (size <= 0 || Clock::now() > deadline) return {};
    request.append(buffer.data(), static_cast<std::size_t>(size));
  }
  return request.substr(0, request.find("\r\n"));
}

}  // namespace

MetricsEndpoint::MetricsEndpoint(const std::string& address, int port)
    : listener_(listen_at(address, port)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_.is_open()) fail_errno("cannot serve metrics");
  sockaddr_in where = {};
  socklen_t size = sizeof(where);
  if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&where), &size) != 0)
    fail_errno("cannot serve metrics");
  port_ = ntohs(where.sin_port);
  // Signals are for the program's first thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

MetricsEndpoint::~MetricsEndpoint() {
  const std::uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof(one)) == sizeof(one)) thread_.join();
}

double& MetricsEndpoint::value_of(std::string_view name, Kind kind, std::string_view help,
                                  const std::map<std::string, std::string>& labels) {
  std::string key;
  for (const auto& [label, value] : labels)
    key += fmt::format("{}{}=\"{}\"", key.empty() ? "" : ",", label, escaped(value, true));
  auto found = families_.find(name);
  if (found == families_.end())
    found = families_.emplace(std::string(name), Family{kind, std::string(help), {}}).first;
  return found->second.values[key];
}

void MetricsEndpoint::set(std::string_view name, Kind kind, std::string_view help, double value,
                          const std::map<std::string, std::string>& labels) {
  const std::lock_guard lock(mutex_);
  value_of(name, kind, help, labels) = value;
}

void MetricsEndpoint::add(std::string_view name, std::string_view help, double by,
                          const std::map<std::string, std::string>& labels) {
  const std::lock_guard lock(mutex_);
  value_of(name, Kind::counter, help, labels) += by;
}

std::string MetricsEndpoint::text() const {
  const std::lock_guard lock(mutex_);
  std::string result;
  for (const auto& [name, family] : families_) {
    result += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(family.help, false), name,
                          family.kind == Kind::counter ? "counter" : "gauge");
    for (const auto& [labels, value] : family.values)
      result += labels.empty() ? fmt::format("{} {}\n", name, shown(value))
                               : fmt::format("{}{{{}}} {}\n", name, labels, shown(value));
  }
  return result;
}

void MetricsEndpoint::answer(int connection) const {
  constexpr timeval kPatience = {.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  ::setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(2);
  const std::string line = request_line(connection, deadline);
  const bool found = line.starts_with("GET /metrics HTTP/1.") || line.starts_with("GET /metrics?");
  const std::string body = found ? text() : "GET /metrics\n";
  const std::string reply = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      found ? "200 OK" : "404 Not Found", body.size(), body);
  for (std::size_t sent = 0; sent < reply.size();) {
    const ssize_t size = ::send(connection, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
    if (size <= 0 || Clock::now() > deadline) return;
    sent += static_cast<std::size_t>(size);
  }
}

void MetricsEndpoint::serve() {
  for (;;) {
    std::array<pollfd, 2> wait = {pollfd{listener_.get(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
    if (::poll(wait.data(), wait.size(), -1) < 0) continue;
    if (wait[1].revents != 0) return;
    const FileDescriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.is_open())
      answer(connection.get());
    else
      ::usleep(10000);  // too many open files, say: not a reason to spin
  }
}

}  // namespace tetrad
