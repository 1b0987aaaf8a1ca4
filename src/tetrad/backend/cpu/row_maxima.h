// SPDX-License-Identifier: Apache-2.0
#pragma once
// Block maxima along rows that lie as they are quantized: no transform, no tile needed.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "tetrad/backend/cpu/simd.h"
#include "tetrad/numerics/bf16.h"

namespace tetrad::cpu {

// The bits of |x| have the order of floats, with NaN and infinity on top instead of lost.
inline std::uint32_t magnitude_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu; }
inline std::uint16_t magnitude_bits(Bf16 x) { return static_cast<std::uint16_t>(x.bits & 0x7FFFu); }
inline float from_magnitude_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline float from_magnitude_bits(std::uint16_t bits) { return Bf16{bits}.to_f32(); }

/// The vector of magnitudes whose rows row_maxima() reduces.
template <typename T>
struct MagnitudeVector;
template <>
struct MagnitudeVector<float> {
  using Type = U32x8;
  static constexpr int kWidth = 8;
};
template <>
struct MagnitudeVector<Bf16> {
  using Type = U16x16;
  static constexpr int kWidth = 16;
};

inline void raise(float& amax, float candidate) {
  amax = from_magnitude_bits(std::max(magnitude_bits(amax), magnitude_bits(candidate)));
}

/// The same for as many as there are lanes, whose magnitudes are given by their bits.
inline void raise(float* amax, U32x8 candidates) {
  U32x8 bits;
  std::memcpy(&bits, amax, sizeof(bits));
  bits = larger(bits & 0x7FFFFFFFu, candidates);
  std::memcpy(amax, &bits, sizeof(bits));
}
inline void raise(float* amax, U16x16 candidates) {
  U32x16 bits;
  std::memcpy(&bits, amax, sizeof(bits));
  bits = larger(bits & 0x7FFFFFFFu, widen(candidates) << 16);
  std::memcpy(amax, &bits, sizeof(bits));
}

inline float amax_of(std::span<const float> values) {
  std::uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, magnitude_bits(value));
  return from_magnitude_bits(largest);
}

/// amax[block] = max(amax[block], maximum over the block), for each block of kBlock elements; the last may be
/// shorter.
template <int kBlock, typename T>
void update_row_maxima(const T* row, std::int64_t cols, float* amax) {
  using Vector = typename MagnitudeVector<T>::Type;
  constexpr int kWidth = MagnitudeVector<T>::kWidth;
  using Bits = decltype(magnitude_bits(T{}));
  constexpr Bits kMask = std::numeric_limits<Bits>::max() >> 1;  // all but the sign

  std::int64_t first = 0;
  for (; cols - first >= kWidth * kBlock;
       first += kWidth * kBlock, amax += kWidth) {  // as many blocks as lanes
    Vector rows[kWidth];
    for (int r = 0; r < kWidth; ++r) {
      rows[r] = Vector{};
      for (int i = 0; i < kBlock; i += kWidth) {
        Vector values;
        std::memcpy(&values, row + first + r * kBlock + i, sizeof(values));
        rows[r] = larger(rows[r], values & kMask);
      }
    }
    raise(amax, row_maxima(rows));
  }
  for (; first < cols; first += kBlock, ++amax)
    for (std::int64_t i = first; i < std::min(cols, first + kBlock); ++i)
      raise(*amax, from_magnitude_bits(magnitude_bits(row[i])));
}

}  // namespace tetrad::cpu
