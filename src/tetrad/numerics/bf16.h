// SPDX-License-Identifier: Apache-2.0
#pragma once
// BF16: the upper half of an f32, rounded to nearest even or stochastically.

#include <bit>
#include <cstdint>

#include "tetrad/numerics/host_device.h"

namespace tetrad {

struct Bf16 {
  std::uint16_t bits;

  TETRAD_HD constexpr float to_f32() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  TETRAD_HD static constexpr Bf16 from_f32(float x) {
    const std::uint32_t b = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (b + 0x7FFFu + ((b >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (b >> 16) | 0x40u;
    return {static_cast<std::uint16_t>((b & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : rounded)};
  }

  /// `random` has 16 bits, as many as are cut off: the expectation is x, exactly. What is finite stays so.
  TETRAD_HD static constexpr Bf16 from_f32_stochastic(float x, std::uint32_t random) {
    const std::uint32_t b = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t magnitude = b & 0x7FFFFFFFu;
    const std::uint32_t rounded = (magnitude + random) >> 16;
    const std::uint32_t finite = (b >> 16 & 0x8000u) | (rounded < 0x7F80u ? rounded : 0x7F7Fu);
    return magnitude < 0x7F800000u ? Bf16{static_cast<std::uint16_t>(finite)} : from_f32(x);
  }

  friend constexpr bool operator==(Bf16, Bf16) = default;
};

/// x rounded to BF16, kept as f32.
TETRAD_HD constexpr float round_to_bf16(float x) { return Bf16::from_f32(x).to_f32(); }

}  // namespace tetrad
