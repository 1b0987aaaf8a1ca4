// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the server does with sockets.

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tetrad/http/address.h"
#include "tetrad/io/mapped_file.h"

namespace tetrad::http {

using Clock = std::chrono::steady_clock;

inline constexpr int kWaiting = 128;  //!< connections that wait to be accepted
inline constexpr std::chrono::milliseconds kTick{
    100};  //!< how often a thread that waits looks whether to stop

struct Listener {
  FileDescriptor socket;
  std::uint16_t port = 0;
  bool is_loopback = false;  //!< only this machine can connect
};

/// Throws Error (bad input) if it cannot.
Listener listen_on(const HttpAddress& where);

/// Waits for events on a socket, at most until the deadline and no longer than a tick.
bool wait_for(int socket, short events, Clock::time_point deadline);

/// Whether all bytes were taken in time. Never raises SIGPIPE.
bool send_all(int socket, std::string_view bytes, Clock::time_point deadline);

/// A connection that is closed while the client still sends is reset, and the client never sees the answer:
/// what it sends is read, and thrown away, for a moment.
void close_gently(int socket);

/// Whether the client has closed the connection, or its half of it: the two look the same from here.
bool has_hung_up(int socket);

/// In numbers.
std::string peer_name(const sockaddr_storage& address, socklen_t size);

}  // namespace tetrad::http
