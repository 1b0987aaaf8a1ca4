// SPDX-License-Identifier: Apache-2.0
#pragma once
// The random Hadamard transform on one run of elements: y = (x * signs) . H, H[r,c] = (-1)^popcount(r & c) /
// sqrt(size).
//
// The order of operations is the definition, so that every backend agrees to the bit: input BF16; signs;
// butterflies (a, b) -> (a+b, a-b) in f32 at strides 1, 2, 4, ...; times f32(1/sqrt(size)); round to BF16
// (the caller's last step).

#include <cstdint>

#include "tetrad/numerics/host_device.h"

namespace tetrad {

inline constexpr int kMaxHadamard = 128;

TETRAD_HD constexpr bool is_hadamard_size(int size) {
  return size >= 2 && size <= kMaxHadamard && (size & (size - 1)) == 0;
}

/// NVIDIA's sign vector: bit i set means -1. Sizes above 16 repeat it, sizes below use its beginning.
inline constexpr std::uint32_t kFixedSigns = 0xD7E8;
inline constexpr std::uint32_t kNoSigns = 0;

TETRAD_HD constexpr bool is_negative_sign(std::uint32_t sign_mask, int index) {
  return ((sign_mask >> (index % 16)) & 1u) != 0;
}

/// f32(1/sqrt(size)).
TETRAD_HD constexpr float hadamard_scale(int size) {
  constexpr float kInvSqrt2 = 0.70710678118654752440f;
  float scale = 1.0f;
  for (; size >= 4; size /= 4) scale *= 0.5f;
  return size == 2 ? scale * kInvSqrt2 : scale;
}

/// Butterflies at kStride, 2 kStride, 4 kStride, ... Strides are constants so that, for small sizes, v stays
/// in registers.
template <int kSize, int kStride, typename Lane>
TETRAD_HD constexpr void hadamard_butterflies(Lane* v) {
  if constexpr (kStride < kSize) {
    for (int i = 0; i < kSize; ++i) {
      if ((i & kStride) != 0) continue;
      const Lane a = v[i];
      const Lane b = v[i + kStride];
      v[i] = a + b;
      v[i + kStride] = a - b;
    }
    hadamard_butterflies<kSize, 2 * kStride>(v);
  }
}

/// In place on v[0..kSize). `Lane` is float, or a SIMD vector of floats when several runs are transformed
/// side by side.
template <int kSize, typename Lane>
TETRAD_HD constexpr void hadamard(Lane* v, std::uint32_t sign_mask) {
  static_assert(is_hadamard_size(kSize));
  for (int i = 0; i < kSize; ++i)
    if (is_negative_sign(sign_mask, i)) v[i] = -v[i];
  hadamard_butterflies<kSize, 1>(v);
  for (int i = 0; i < kSize; ++i) v[i] = v[i] * hadamard_scale(kSize);
}

}  // namespace tetrad
