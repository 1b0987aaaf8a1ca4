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

/// Which elements of a transform are negated: a bit for each. Smaller transforms use the beginning.
struct SignMask {
  std::uint32_t word[kMaxHadamard / 32] = {};

  TETRAD_HD constexpr bool is_negative(int index) const {
    return ((word[index / 32] >> (index % 32)) & 1u) != 0;
  }
  friend constexpr bool operator==(const SignMask&, const SignMask&) = default;
};

/// Sixteen signs, bit i set meaning -1, over and over.
TETRAD_HD constexpr SignMask repeated_signs(std::uint32_t sixteen) {
  SignMask mask;
  for (std::uint32_t& word : mask.word) word = sixteen | sixteen << 16;
  return mask;
}

/// NVIDIA's sign vector.
inline constexpr std::uint32_t kFixedSignPattern = 0xD7E8;
inline constexpr SignMask kFixedSigns = repeated_signs(kFixedSignPattern);
inline constexpr SignMask kNoSigns = {};

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

/// In place on v[0..kSize), which has its signs already. `Lane` is float, or a SIMD vector of floats when
/// several runs are transformed side by side.
template <int kSize, typename Lane>
TETRAD_HD constexpr void hadamard(Lane* v) {
  static_assert(is_hadamard_size(kSize));
  hadamard_butterflies<kSize, 1>(v);
  for (int i = 0; i < kSize; ++i) v[i] = v[i] * hadamard_scale(kSize);
}

template <int kSize, typename Lane>
TETRAD_HD constexpr void hadamard(Lane* v, const SignMask& signs) {
  for (int i = 0; i < kSize; ++i)
    if (signs.is_negative(i)) v[i] = -v[i];
  hadamard<kSize>(v);
}

}  // namespace tetrad
