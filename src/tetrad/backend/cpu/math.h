// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elementary functions of f32 without branches or tables, so that the compiler vectorises loops over them
// (libm's are calls). Always inlined: a call would end vectorisation.
//
// Errors over the whole range, against double precision: fast_exp and log1p_unit 2 ulp; sigmoid, silu and
// softplus 4 ulp, or 2^-142 where e^x is subnormal. NaN gives NaN.

#include <bit>
#include <cmath>
#include <cstdint>

#include "tetrad/backend/cpu/simd.h"

#define TETRAD_ALWAYS_INLINE [[gnu::always_inline]] inline

namespace tetrad::cpu {

/// e^x. 0 below -104, infinity above 88.72; subnormal results are kept.
TETRAD_ALWAYS_INLINE float fast_exp(float x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits: times n it is exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kRounder = 0x1.8p+23f;  // adding it leaves the nearest integer in the low bits

  const float from_below = x < -104.0f ? -104.0f : x;
  const float clamped = from_below > 89.0f ? 89.0f : from_below;
  const float shifted = fused(clamped, kLog2E, kRounder);
  const float n = shifted - kRounder;
  const float r = fused(-n, kLn2Low, fused(-n, kLn2High, clamped));  // |r| <= ln(2) / 2

  // e^r = 1 + r + r^2 * p(r), p fitted for the least relative error
  float p = 0x1.6a2352p-10f;
  p = fused(p, r, 0x1.123a6ap-7f);
  p = fused(p, r, 0x1.5558f4p-5f);
  p = fused(p, r, 0x1.55549p-3f);
  p = fused(p, r, 0x1.fffffcp-2f);
  const float mantissa = fused(p, r * r, r) + 1.0f;

  // 2^n in two factors, both normal, because 2^-150 and 2^128 are not
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRounder);
  const std::int32_t half = exponent >> 1;
  const auto power_of_two = [](std::int32_t e) { return std::bit_cast<float>((e + 127) << 23); };
  return mantissa * power_of_two(half) * power_of_two(exponent - half);
}

/// log(1 + x) for x in [0, 1].
TETRAD_ALWAYS_INLINE float log1p_unit(float x) {
  // 2 atanh(s) with s <= 1/3: no cancellation, so that tiny x keep their digits
  const float s = x / (2.0f + x);
  const float s2 = s * s;
  float p = 2.0f / 15.0f;
  p = fused(p, s2, 2.0f / 13.0f);
  p = fused(p, s2, 2.0f / 11.0f);
  p = fused(p, s2, 2.0f / 9.0f);
  p = fused(p, s2, 2.0f / 7.0f);
  p = fused(p, s2, 2.0f / 5.0f);
  p = fused(p, s2, 2.0f / 3.0f);
  return fused(p, s2 * s, 2.0f * s);
}

/// 1 / (1 + e^-x), with the digits of the small side kept.
TETRAD_ALWAYS_INLINE float sigmoid(float x) {
  const float e = fast_exp(-std::fabs(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/// x * sigmoid(x).
TETRAD_ALWAYS_INLINE float silu(float x) { return x * sigmoid(x); }

/// d silu(x) / dx.
TETRAD_ALWAYS_INLINE float silu_gradient(float x) {
  // s + x * s * (1 - s), with 1 - s from its own formula: x would magnify a difference's error
  const float e = fast_exp(-std::fabs(x));
  const float larger = 1.0f / (1.0f + e);
  const float smaller = e * larger;
  return fused(x, larger * smaller, x < 0 ? smaller : larger);
}

/// log(1 + e^x); its derivative is sigmoid(x).
TETRAD_ALWAYS_INLINE float softplus(float x) {
  return (x > 0 ? x : 0.0f) + log1p_unit(fast_exp(-std::fabs(x)));
}

}  // namespace tetrad::cpu
