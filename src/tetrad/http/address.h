// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a server listens, as people write it, and how clients name it.

#include <cstdint>
#include <string>
#include <string_view>

namespace tetrad {

struct HttpAddress {
  std::string host = "127.0.0.1";  //!< in numbers, or localhost
  std::uint16_t port = 0;          //!< 0: one that is free
};

/// "127.0.0.1:9464", "[::1]:9464", or a port alone, which means 127.0.0.1. `what` begins the message of the
/// Error (bad input) that anything else gets.
HttpAddress parse_address(std::string_view text, std::string_view what);

/// Whether a Host header means this machine by a name that no DNS server is asked about. A page whose own
/// name was made to point at 127.0.0.1 has its browser send another one.
bool names_loopback(std::string_view host);

/// Whether it is an address in numbers, of whatever machine.
bool names_number(std::string_view host);

/// Whether it is this name, with a port or without.
bool names_host(std::string_view host, std::string_view name);

}  // namespace tetrad
