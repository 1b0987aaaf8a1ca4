// SPDX-License-Identifier: Apache-2.0
#pragma once
// NVFP4: E2M1 elements, one E4M3 scale per block of 16 (or 16x16), one f32 scale per tensor derived from its
// amax. All arithmetic is f32, in this order; other orders give other bytes.

#include <limits>

#include "tetrad/numerics/e2m1.h"
#include "tetrad/numerics/e4m3.h"
#include "tetrad/numerics/scaling.h"

namespace tetrad::nvfp4 {

inline constexpr int kBlock = 16;
inline constexpr float kFloatMax = std::numeric_limits<float>::max();

/// The largest block scale a tensor's scale aims at. Where scales are chosen among candidates there is room
/// to stretch one by 1.5 and to take the next above, and where they are corrected to grow.
inline constexpr float kScaleRange = E4m3::kMax;
inline constexpr float kRoomyScaleRange = 256.0f;
inline constexpr float kStretch = 1.5f;  //!< maps the block's largest value to 4 instead of 6

/// What the largest element of a tensor is mapped to: 2688, or 1536 where scales are chosen or corrected.
TETRAD_HD constexpr float tensor_range(Scaling scaling) {
  return E2m1::kMax * (depends_on_values(scaling) ? kRoomyScaleRange : kScaleRange);
}

/// What the amax of a block is multiplied by, in units of the tensor's scale, to get its own before the cast:
/// the largest value becomes 6. Under MS-EDEN it becomes 6 / (17/16 * 0.93), about 6.07: slightly smaller
/// scales lose least, for what saturates is corrected with the rest of the group.
TETRAD_HD constexpr float block_factor(Scaling scaling) {
  return scaling == Scaling::eden ? 0.1646875f : 1.0f / 6.0f;
}

/// For x >= 0, whose order is that of its bits.
TETRAD_HD constexpr float at_most_float_max(float x) {
  constexpr std::uint32_t kMaxBits = std::bit_cast<std::uint32_t>(kFloatMax);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>(bits < kMaxBits ? bits : kMaxBits);
}

struct TensorScale {
  float encode;            //!< S_enc
  float decode;            //!< S_dec = 1 / S_enc
  float block_multiplier;  //!< S_enc / 6, as S_enc * f32(1/6): amax of a block -> its scale before the E4M3
                           //!< cast; see block_factor()
};

/// A NaN amax marks a tensor that had non-finite input; it decodes to NaN everywhere, so that no run trains
/// on it.
TETRAD_HD constexpr TensorScale tensor_scale(float amax, Scaling scaling = Scaling::standard) {
  if (amax != amax) return {amax, amax, amax};
  float encode = amax > 0.0f ? at_most_float_max(tensor_range(scaling) / amax) : 1.0f;
  if (encode == 0.0f) encode = 1.0f;
  return {encode, 1.0f / encode, encode * block_factor(scaling)};
}

struct BlockScale {
  std::uint32_t byte;  //!< E4M3
  float encode;        //!< what an element is multiplied by before the E2M1 cast; from the *rounded* scale
};

TETRAD_HD constexpr BlockScale scale_of_byte(std::uint32_t byte, TensorScale tensor) {
  return {byte, at_most_float_max(1.0f / (E4m3::decode(byte) * tensor.decode))};
}

/// The scale that maps the block's largest value to 6, rounded to nearest.
TETRAD_HD constexpr BlockScale block_scale(float block_amax, TensorScale tensor) {
  return scale_of_byte(E4m3::encode(at_most_float_max(block_amax * tensor.block_multiplier)), tensor);
}

// --- Scales chosen among candidates: the one whose sum of squared errors is the least, the first of equals -

/// Scaling::four_six compares the first two, Scaling::search all.
inline constexpr int kMostCandidates = 6;
TETRAD_HD constexpr int candidates_of(Scaling scaling) {
  return scaling == Scaling::search ? kMostCandidates : scaling == Scaling::four_six ? 2 : 1;
}

/// The bytes of E4M3 that a block's scale is chosen from: the two that map its largest value to 6 and to 4,
/// then the neighbours of those, the smaller one first.
struct Candidates {
  std::uint32_t six, four;

  TETRAD_HD constexpr std::uint32_t byte(int index) const {
    const std::uint32_t centre = index == 1 || index > 3 ? four : six;
    const std::uint32_t smaller = centre > 0 ? centre - 1 : 0u;
    const std::uint32_t larger = centre < E4m3::kMaxCode ? centre + 1 : E4m3::kMaxCode;
    return index < 2 ? centre : index % 2 == 0 ? smaller : larger;
  }
};
TETRAD_HD constexpr Candidates candidates_for(float block_amax, TensorScale tensor) {
  const float unrounded = block_amax * tensor.block_multiplier;
  return {E4m3::encode(at_most_float_max(unrounded)), E4m3::encode(at_most_float_max(unrounded * kStretch))};
}

/// What nearest rounding loses of an element, squared, in units of the tensor's scale: in these neither large
/// nor small tensors leave the range of f32. `value` is the scale that `encode` belongs to, decoded.
TETRAD_HD constexpr float squared_error(float x, float encode, float value, TensorScale tensor) {
  const float error = E2m1::rounded_magnitude(x * encode) * value - magnitude_of(x) * tensor.encode;
  return error * error;
}

/// What a GEMM multiplies: exact in BF16, the tensor scale being left to alpha.
TETRAD_HD constexpr float decode_without_tensor_scale(std::uint32_t code, std::uint32_t scale_byte) {
  return E2m1::decode(code) * E4m3::decode(scale_byte);
}

TETRAD_HD constexpr float decode(std::uint32_t code, std::uint32_t scale_byte, TensorScale tensor) {
  return decode_without_tensor_scale(code, scale_byte) * tensor.decode;
}

/// The amax to put into alpha = amax_a * amax_b / (range_a * range_b). It is the tensor's, except where S_enc
/// was clamped to FLT_MAX (amax below range / FLT_MAX): there decoding uses 1 / FLT_MAX, and alpha must agree
/// with it.
TETRAD_HD constexpr float alpha_amax(float amax, Scaling scaling = Scaling::standard) {
  const float smallest = tensor_range(scaling) / kFloatMax;
  return amax < smallest && amax > 0.0f ? smallest : amax;
}

}  // namespace tetrad::nvfp4
