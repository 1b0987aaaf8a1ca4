// SPDX-License-Identifier: Apache-2.0
#include "tetrad/http/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>

#include "tetrad/core/error.h"

namespace tetrad::http {
namespace {

using std::chrono::milliseconds;

void describe(const sockaddr_storage& bound, Listener& listener) {
  if (bound.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(bound);
    listener.port = ntohs(address.sin6_port);
    listener.is_loopback = IN6_IS_ADDR_LOOPBACK(&address.sin6_addr);
  } else {
    const auto& address = reinterpret_cast<const sockaddr_in&>(bound);
    listener.port = ntohs(address.sin_port);
    listener.is_loopback = ntohl(address.sin_addr.s_addr) >> 24U == 127;
  }
}

}  // namespace

Listener listen_on(const HttpAddress& where) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICHOST;  // no name is looked up
  addrinfo* found = nullptr;
  const std::string numeric = where.host == "localhost" ? "127.0.0.1" : where.host;
  const int error = ::getaddrinfo(numeric.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  TETRAD_CHECK(error == 0, "cannot listen on {:?}: {}; give an address of this machine in numbers",
               where.host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> address(found, ::freeaddrinfo);
  const auto give_up = [&] {
    fail("cannot listen on {} port {}: {}; choose another address or port", where.host, where.port,
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
  describe(bound, listener);
  return listener;
}

bool wait_for(int socket, short events, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  pollfd entry{socket, events, 0};
  return ::poll(&entry, 1, static_cast<int>(std::clamp(left, milliseconds(0), kTick).count())) > 0;
}

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

}  // namespace tetrad::http
