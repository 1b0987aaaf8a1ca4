// SPDX-License-Identifier: Apache-2.0
#pragma once
// A block of 16 neighbours in a row, in one thread: words of elements (0, 1), (2, 3), ...

#include "tetrad/backend/cuda/quantize/nvfp4_block.cuh"

namespace tetrad::cuda {

struct RowBlock {
  std::uint32_t magnitudes[2];  //!< nibbles, in the order of the elements
  std::uint32_t scale_byte;
};

TETRAD_HD inline void unpack_row(const std::uint32_t (&pairs)[8], float (&v)[16]) {
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < 8; ++i) {
    v[2 * i] = low_bf16(pairs[i]);
    v[2 * i + 1] = high_bf16(pairs[i]);
  }
}

/// The larger half of each pair, and of those the largest.
TETRAD_HD inline std::uint32_t largest_magnitude(const std::uint32_t (&pairs)[8]) {
  std::uint32_t largest = 0;
  TETRAD_UNROLL_ON_DEVICE
  for (const std::uint32_t pair : pairs) largest = max_halves(largest, pair & kMagnitudesOfPair);
  return max_halves(largest, largest >> 16) << 16;  // as the bits of an f32
}

template <Transform kTransform>
TETRAD_HD inline std::uint32_t find_amax_of_row_block(const std::uint32_t (&pairs)[8]) {
  if constexpr (kTransform == Transform::none) {
    return largest_magnitude(pairs);
  } else {
    float v[16];
    unpack_row(pairs, v);
    return amax_bits_after_scaling(transformed_amax<kTransform>(v, 0.0f));
  }
}

/// The magnitudes of a block. Where it is not tame, the sign bits of `pairs` become those of the codes.
template <bool kStochastic, bool kTame>
TETRAD_HD inline void encode_row_values(const PhiloxWords& random, std::uint32_t bias, float encode,
                                        std::uint32_t (&pairs)[8], std::uint32_t (&magnitudes)[2]) {
  float v[16];
  unpack_row(pairs, v);
  TETRAD_UNROLL_ON_DEVICE
  for (int half = 0; half < 2; ++half) {
    EightValues<kStochastic, kTame> eight;
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < 4; ++i) {
      const int j = half * 8 + 2 * i;
      const std::uint32_t word = random[static_cast<std::size_t>(j / 4)];
      std::uint32_t negative[2] = {};
      eight.put(0, i, v[j] * encode, word, j % 4, bias, negative[0]);
      eight.put(1, i, v[j + 1] * encode, word, j % 4 + 1, bias, negative[1]);
      if constexpr (!kTame) pairs[j / 2] = negative[0] << 15 | negative[1] << 31;
    }
    magnitudes[half] = eight.magnitudes();
  }
}

template <bool kChoice>
TETRAD_HD inline nvfp4::BlockScale row_block_scale(const std::uint32_t (&pairs)[8], float amax,
                                                   const nvfp4::TensorScale& tensor, Scaling scaling) {
  if constexpr (kChoice) {
    float v[16];
    unpack_row(pairs, v);
    return chosen_scale(v, amax, tensor, scaling);
  } else {
    return fast_block_scale(amax, tensor);
  }
}

/// `pairs` become what was quantized; their sign bits are those of the codes.
template <bool kStochastic, Transform kTransform, bool kChoice>
TETRAD_HD inline RowBlock encode_row_block(const nvfp4::TensorScale& tensor, Scaling scaling,
                                           const PhiloxWords& random, std::uint32_t bias,
                                           std::uint32_t (&pairs)[8]) {
  if constexpr (kTransform != Transform::none) {
    float v[16];
    unpack_row(pairs, v);
    butterflies_16<kTransform>(v);
    last_butterflies_16(v);
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < 8; ++i) pairs[i] = pack_bf16(v[2 * i], v[2 * i + 1]);
  }
  TETRAD_UNROLL_ON_DEVICE
  for (std::uint32_t& pair : pairs) pair = without_negative_zero(pair);
  const auto amax = std::bit_cast<float>(largest_magnitude(pairs));
  const BlockEncoding block = encoding_of(amax, row_block_scale<kChoice>(pairs, amax, tensor, scaling));
  RowBlock result;
  result.scale_byte = block.byte;
  if (block.tame)
    encode_row_values<kStochastic, true>(random, bias, block.encode, pairs, result.magnitudes);
  else
    encode_row_values<kStochastic, false>(random, bias, block.encode, pairs, result.magnitudes);
  return result;
}

/// Eight codes, packed: words 0-3 or 4-7 of `pairs`.
TETRAD_HD inline std::uint32_t row_codes(std::uint32_t magnitudes, const std::uint32_t* pairs) {
  const std::uint32_t first = byte_perm(pairs[0], pairs[1], 0x7351u);  // high bytes of elements 0 2 1 3
  const std::uint32_t second = byte_perm(pairs[2], pairs[3], 0x7351u);
  return magnitudes | sign_nibbles(byte_perm(first, second, 0x5410u), byte_perm(first, second, 0x7632u));
}

/// Eight values of the operand in the place of the pairs they come from.
TETRAD_HD inline void row_operand(std::uint32_t magnitudes, std::uint32_t scale, std::uint32_t* pairs) {
  const DecodedBytes first = decode_four(magnitudes & 0xFFFFu);
  const DecodedBytes second = decode_four(magnitudes >> 16);
  pairs[0] = mul_pairs(pair_01(first), scale) | (pairs[0] & kSignsOfPair);
  pairs[1] = mul_pairs(pair_23(first), scale) | (pairs[1] & kSignsOfPair);
  pairs[2] = mul_pairs(pair_01(second), scale) | (pairs[2] & kSignsOfPair);
  pairs[3] = mul_pairs(pair_23(second), scale) | (pairs[3] & kSignsOfPair);
}

}  // namespace tetrad::cuda
