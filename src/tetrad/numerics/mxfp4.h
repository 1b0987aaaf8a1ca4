// SPDX-License-Identifier: Apache-2.0
#pragma once
// MXFP4 (OCP MX): E2M1 elements, one E8M0 scale per block of 32 (or 32x32), no tensor scale. The scale is
// 2^(floor(log2 amax) - 2), with which maxima above 6 times it saturate, or the next power of two for those.

#include "tetrad/numerics/e2m1.h"
#include "tetrad/numerics/e8m0.h"
#include "tetrad/numerics/scaling.h"

namespace tetrad::mxfp4 {

inline constexpr int kBlock = 32;

struct BlockScale {
  std::uint32_t byte;  //!< E8M0
  float encode;        //!< 1 / scale, a power of two: the multiplication is exact
};

TETRAD_HD constexpr BlockScale block_scale(float block_amax, Scaling scaling) {
  constexpr std::uint32_t kLargestExponentOfElement = 2;  // 6 = 1.5 * 2^2
  constexpr std::uint32_t kMantissaOfSix = 0x400000;
  constexpr std::uint32_t kLargestFinite = 252;  // 2^125: with 2^126 the code 4 would decode to infinity
  std::uint32_t exponent = E8m0::floor_log2_byte(block_amax);
  const bool exceeds_six = (std::bit_cast<std::uint32_t>(block_amax) & 0x7FFFFFu) > kMantissaOfSix;
  if (scaling == Scaling::up) exponent += exceeds_six ? 1u : 0u;
  std::uint32_t byte = exponent > kLargestExponentOfElement ? exponent - kLargestExponentOfElement : 0u;
  byte = byte < kLargestFinite ? byte : kLargestFinite;
  return {byte, std::bit_cast<float>((254u - byte) << 23)};
}

TETRAD_HD constexpr float decode(std::uint32_t code, std::uint32_t scale_byte) {
  return E2m1::decode(code) * E8m0::decode(scale_byte);
}

}  // namespace tetrad::mxfp4
