// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stable 64-bit hashes: the same on every machine and in every version, because files and orders depend on
// them. Against accidents, not against attackers.

#include <cstdint>
#include <string_view>

namespace tetrad {

/// FNV-1a, byte by byte.
class Hash64 {
 public:
  constexpr Hash64& add(std::string_view bytes) {
    for (const char c : bytes) value_ = (value_ ^ static_cast<std::uint8_t>(c)) * 0x100000001B3u;
    return *this;
  }
  constexpr Hash64& add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) value_ = (value_ ^ (number >> shift & 0xFF)) * 0x100000001B3u;
    return *this;
  }

  /// All bits depend on all input bits; FNV-1a alone leaves the upper ones of short inputs poor.
  constexpr std::uint64_t value() const {
    std::uint64_t x = value_;
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
    return x ^ (x >> 33);
  }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325u;
};

constexpr std::uint64_t hash64(std::string_view bytes) { return Hash64().add(bytes).value(); }

}  // namespace tetrad
