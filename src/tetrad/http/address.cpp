// SPDX-License-Identifier: Apache-2.0
#include "tetrad/http/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "tetrad/core/error.h"
#include "tetrad/http/ascii.h"

namespace tetrad {
namespace {

std::optional<std::uint16_t> parse_port(std::string_view digits) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return port;
}

struct Parts {
  std::string host;
  std::string_view port;  //!< with its colon; empty: none
};

/// An address of IPv6 stands in brackets, because it has colons of its own.
std::optional<Parts> split(std::string_view text) {
  const bool has_brackets = text.starts_with('[');
  const std::size_t end = has_brackets ? text.find(']') : std::min(text.find(':'), text.size());
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view host = has_brackets ? text.substr(1, end - 1) : text.substr(0, end);
  return Parts{std::string(host), text.substr(has_brackets ? end + 1 : end)};
}

/// The name in a Host header, in lower case and without port and brackets; empty if there is none.
std::string name_in(std::string_view host) {
  const std::optional<Parts> parts = split(host);
  if (!parts || (!parts->port.empty() && !(parts->port[0] == ':' && parse_port(parts->port.substr(1)))))
    return {};
  return lower_case(parts->host);
}

}  // namespace

HttpAddress parse_address(std::string_view text, std::string_view what) {
  HttpAddress address;
  std::optional<std::uint16_t> port = parse_port(text);
  if (!port) {
    const std::optional<Parts> parts = split(text);
    if (parts && !parts->host.empty() && parts->port.starts_with(':')) {
      address.host = parts->host;
      port = parse_port(parts->port.substr(1));
    }
  }
  TETRAD_CHECK(port.has_value(),
               "{} is {:?}: give an address and a port, such as 127.0.0.1:9464, or only a port, which this "
               "machine alone can reach",
               what, text.substr(0, 100));
  address.port = *port;
  return address;
}

bool names_loopback(std::string_view host) {
  const std::string name = name_in(host);
  if (name == "localhost" || name.ends_with(".localhost")) return true;
  in6_addr v6 = {};
  if (host.starts_with('['))
    return ::inet_pton(AF_INET6, name.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
  in_addr v4 = {};
  return ::inet_pton(AF_INET, name.c_str(), &v4) == 1 && ntohl(v4.s_addr) >> 24U == 127;
}

bool names_number(std::string_view host) {
  in6_addr address = {};  // room for both kinds
  return ::inet_pton(host.starts_with('[') ? AF_INET6 : AF_INET, name_in(host).c_str(), &address) == 1;
}

bool names_host(std::string_view host, std::string_view name) {
  const std::string given = name_in(host);
  return !given.empty() && given == lower_case(name);
}

}  // namespace tetrad
