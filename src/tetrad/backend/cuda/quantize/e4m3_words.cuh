// SPDX-License-Identifier: Apache-2.0
#pragma once
// E4M3 casts of four values at once, with the instruction that Ada and later have for it: equal to
// E4m3::encode() for everything but NaN.

#include <cstdint>

#include "tetrad/numerics/e4m3.h"

namespace tetrad::cuda {

/// The codes of four values, the first in the low byte.
TETRAD_HD inline std::uint32_t e4m3_codes(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t codes;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;"
      " cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high}; }"
      : "=r"(codes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return codes;
#else
  return E4m3::encode(a) | E4m3::encode(b) << 8 | E4m3::encode(c) << 16 | E4m3::encode(d) << 24;
#endif
}

}  // namespace tetrad::cuda
