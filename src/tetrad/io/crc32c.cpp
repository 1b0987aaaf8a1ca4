// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/crc32c.h"

#include <array>

namespace tetrad {
namespace {

constexpr auto kTable = [] {
  constexpr std::uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41 with its bits reversed
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::byte byte : bytes)
    crc = crc >> 8 ^ kTable[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
  return ~crc;
}

}  // namespace tetrad
