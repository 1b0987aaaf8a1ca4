// SPDX-License-Identifier: Apache-2.0
#pragma once
// E8M0, the block scale of the OCP MX formats: byte b means 2^(b-127); 255 is NaN.

#include <bit>
#include <cstdint>

#include "tetrad/numerics/host_device.h"

namespace tetrad {

struct E8m0 {
  static constexpr std::uint8_t kNan = 255;

  TETRAD_HD static constexpr float decode(std::uint32_t byte) {
    const std::uint32_t normal = byte << 23;  // byte 255 would read as infinity, hence the NaN bit below
    const std::uint32_t bits = byte == 0 ? 0x00400000u : (byte == kNan ? 0x7FC00000u : normal);
    return std::bit_cast<float>(bits);
  }

  /// The byte of 2^floor(log2 x) for x >= 0: the exponent field itself. Zero and subnormals give the smallest
  /// scale, 0.
  TETRAD_HD static constexpr std::uint32_t floor_log2_byte(float x) {
    return (std::bit_cast<std::uint32_t>(x) >> 23) & 0xFFu;
  }
};

}  // namespace tetrad
