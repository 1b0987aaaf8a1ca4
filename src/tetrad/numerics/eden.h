// SPDX-License-Identifier: Apache-2.0
#pragma once
// MS-EDEN for NVFP4: unbiased rounding of operands that a random Hadamard transform has rotated.
//
// Codes are rounded to nearest, which shortens or lengthens a rotated group (the elements of one transform)
// along its own direction; over random rotations that is all the bias there is. The correction c = |x|^2 /
// <x, Q(x)> takes it away, and since scales are E4M3, each block's is drawn from the two neighbours of c
// times its own, so that it is right on average.

#include "tetrad/numerics/nvfp4.h"
#include "tetrad/numerics/philox.h"

namespace tetrad::nvfp4 {

/// What an element adds to |x|^2 and to <x, Q(x)>, in units of the tensor's scale: in these neither large nor
/// small tensors leave the range of f32. `value` is the scale that `encode` belongs to, decoded.
struct Projection {
  float square, product;
};
TETRAD_HD constexpr Projection projection(float x, float encode, float value, TensorScale tensor) {
  const float y = magnitude_of(x) * tensor.encode;
  return {y * y, y * (E2m1::rounded_magnitude(x * encode) * value)};
}

/// 1 where nothing is left of the group.
TETRAD_HD constexpr float correction(Projection group) {
  return group.product > 0.0f ? at_most_float_max(group.square / group.product) : 1.0f;
}

/// The byte of E4M3 that is stored in the place of the one that the codes were found with.
TETRAD_HD constexpr std::uint32_t corrected_byte(std::uint32_t byte, float correction,
                                                 std::uint32_t random_byte) {
  return E4m3::encode_stochastic(correction * E4m3::decode(byte), random_byte);
}

/// Sixteen neighbouring blocks share one Philox call, as the sixteen elements of a block do where elements
/// are drawn: block n of the tensor, counted along its rows, takes byte n % 16 of group n / 16.
TETRAD_HD constexpr std::uint32_t random_byte_of_block(const PhiloxWords& words, std::uint32_t block) {
  return RandomStream::byte(words, static_cast<int>(block % RandomStream::kGroup));
}

}  // namespace tetrad::nvfp4
