// SPDX-License-Identifier: Apache-2.0
#pragma once
// Blocks of 16 elements down four neighbouring columns of memory, in one thread. Word [r][p] has columns 2p
// and 2p + 1 of row r.

#include "tetrad/backend/cuda/quantize/nvfp4_block.cuh"

namespace tetrad::cuda {

inline constexpr int kPatchRows = 16;
inline constexpr int kPatchCols = 4;

/// As it lies in memory: kPatchRows rows of kPatchCols elements.
struct Patch {
  std::uint32_t pair[kPatchRows][2];
};

TETRAD_HD inline void unpack_columns(const Patch& patch, int p, float (&left)[16], float (&right)[16]) {
  TETRAD_UNROLL_ON_DEVICE
  for (int r = 0; r < kPatchRows; ++r) {
    left[r] = low_bf16(patch.pair[r][p]);
    right[r] = high_bf16(patch.pair[r][p]);
  }
}

/// Without a transform.
TETRAD_HD inline std::uint32_t find_plain_amax_of_patch(const Patch& patch) {
  std::uint32_t largest = 0;
  TETRAD_UNROLL_ON_DEVICE
  for (const auto& row : patch.pair) {
    largest = max_halves(largest, row[0] & kMagnitudesOfPair);
    largest = max_halves(largest, row[1] & kMagnitudesOfPair);
  }
  return max_halves(largest, largest >> 16) << 16;  // as the bits of an f32
}

template <Transform kTransform>
TETRAD_HD inline std::uint32_t find_amax_of_patch(const Patch& patch) {
  if constexpr (kTransform == Transform::none) {
    return find_plain_amax_of_patch(patch);
  } else {
    float amax = 0.0f;
    TETRAD_UNROLL_ON_DEVICE
    for (int p = 0; p < 2; ++p) {
      float left[16];
      float right[16];
      unpack_columns(patch, p, left, right);
      amax = transformed_amax<kTransform>(left, amax);
      amax = transformed_amax<kTransform>(right, amax);
    }
    return amax_bits_after_scaling(amax);
  }
}

template <Transform kTransform>
TETRAD_HD inline void transform_patch(Patch& patch) {
  if constexpr (kTransform != Transform::none) {
    TETRAD_UNROLL_ON_DEVICE
    for (int p = 0; p < 2; ++p) {
      float left[16];
      float right[16];
      unpack_columns(patch, p, left, right);
      butterflies_16<kTransform>(left);
      last_butterflies_16(left);
      butterflies_16<kTransform>(right);
      last_butterflies_16(right);
      TETRAD_UNROLL_ON_DEVICE
      for (int r = 0; r < kPatchRows; ++r) patch.pair[r][p] = pack_bf16(left[r], right[r]);
    }
  }
}

/// The scales of the four columns.
struct PatchEncoding {
  std::uint32_t scale_bytes;  //!< one each
  float encode[kPatchCols];
  bool tame;  //!< all of them
};

/// The scale of one column; `right`: of pair p's second.
template <bool kChoice>
TETRAD_HD inline nvfp4::BlockScale column_scale(const Patch& patch, int p, bool right, float amax,
                                                const nvfp4::TensorScale& tensor, Scaling scaling) {
  if constexpr (kChoice) {
    float v[16];
    TETRAD_UNROLL_ON_DEVICE
    for (int r = 0; r < kPatchRows; ++r)
      v[r] = right ? high_bf16(patch.pair[r][p]) : low_bf16(patch.pair[r][p]);
    return chosen_scale(v, amax, tensor, scaling);
  } else {
    return fast_block_scale(amax, tensor);
  }
}

/// Also makes every -0 of the patch +0.
template <bool kChoice>
TETRAD_HD inline PatchEncoding encoding_of(Patch& patch, const nvfp4::TensorScale& tensor, Scaling scaling) {
  PatchEncoding result;
  result.scale_bytes = 0;
  result.tame = true;
  TETRAD_UNROLL_ON_DEVICE
  for (int p = 0; p < 2; ++p) {
    std::uint32_t largest = 0;
    TETRAD_UNROLL_ON_DEVICE
    for (auto& row : patch.pair) {
      row[p] = without_negative_zero(row[p]);
      largest = max_halves(largest, row[p] & kMagnitudesOfPair);
    }
    const float maxima[2] = {low_bf16(largest), high_bf16(largest)};
    const BlockEncoding left =
        encoding_of(maxima[0], column_scale<kChoice>(patch, p, false, maxima[0], tensor, scaling));
    const BlockEncoding right =
        encoding_of(maxima[1], column_scale<kChoice>(patch, p, true, maxima[1], tensor, scaling));
    result.encode[2 * p] = left.encode;
    result.encode[2 * p + 1] = right.encode;
    result.scale_bytes |= (left.byte | right.byte << 8) << (16 * p);
    result.tame = result.tame && left.tame && right.tame;
  }
  return result;
}

/// The magnitudes of rows 2k and 2k + 1: byte c has the two of column c, the even row's low. random[c] is
/// word (2k) / 4 of column c's random bits. The sign bits of the patch become those of the codes.
template <bool kStochastic, bool kTame>
TETRAD_HD inline std::uint32_t encode_row_pair(Patch& patch, int k, const PatchEncoding& block,
                                               const std::uint32_t (&random)[kPatchCols],
                                               std::uint32_t bias) {
  EightValues<kStochastic, kTame> eight;
  TETRAD_UNROLL_ON_DEVICE
  for (int odd = 0; odd < 2; ++odd) {
    const int r = 2 * k + odd;
    const float y[kPatchCols] = {
        low_bf16(patch.pair[r][0]) * block.encode[0], high_bf16(patch.pair[r][0]) * block.encode[1],
        low_bf16(patch.pair[r][1]) * block.encode[2], high_bf16(patch.pair[r][1]) * block.encode[3]};
    std::uint32_t negative[kPatchCols] = {};
    TETRAD_UNROLL_ON_DEVICE
    for (int c = 0; c < kPatchCols; ++c) eight.put(odd, c, y[c], random[c], r % 4, bias, negative[c]);
    if constexpr (!kTame) {
      patch.pair[r][0] = negative[0] << 15 | negative[1] << 31;
      patch.pair[r][1] = negative[2] << 15 | negative[3] << 31;
    }
  }
  return eight.magnitudes();
}

/// The codes of rows 2k and 2k + 1: a byte for each column.
TETRAD_HD inline std::uint32_t column_codes(std::uint32_t magnitudes, const Patch& patch, int k) {
  return magnitudes | sign_nibbles(byte_perm(patch.pair[2 * k][0], patch.pair[2 * k][1], 0x7531u),
                                   byte_perm(patch.pair[2 * k + 1][0], patch.pair[2 * k + 1][1], 0x7531u));
}

/// The operand's rows 2k and 2k + 1 in the place of the patch's. `scales` are pairs of columns.
TETRAD_HD inline void column_operand(std::uint32_t magnitudes, const std::uint32_t (&scales)[2], Patch& patch,
                                     int k) {
  TETRAD_UNROLL_ON_DEVICE
  for (int p = 0; p < 2; ++p) {
    const DecodedBytes values = decode_four(p == 0 ? magnitudes & 0xFFFFu : magnitudes >> 16);
    std::uint32_t& even = patch.pair[2 * k][p];
    std::uint32_t& odd = patch.pair[2 * k + 1][p];
    even = mul_pairs(pair_02(values), scales[p]) | (even & kSignsOfPair);
    odd = mul_pairs(pair_13(values), scales[p]) | (odd & kSignsOfPair);
  }
}

}  // namespace tetrad::cuda
