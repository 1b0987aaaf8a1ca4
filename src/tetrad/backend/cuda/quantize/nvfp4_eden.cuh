// SPDX-License-Identifier: Apache-2.0
#pragma once
// MS-EDEN after Hadamard transforms of 128, in eight threads: each has a part, 16 neighbours of the 128, as a
// block of a row or as a patch of four columns. What parts tell each other is the caller's business: lanes of
// a warp on a device, elements of an array in a test.

#include <cstdint>

#include "tetrad/backend/cuda/quantize/eden.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_column_patches.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_rows.cuh"

namespace tetrad::cuda {

inline constexpr int kRotation = 128;
inline constexpr std::uint32_t kParts = kRotation / kGroup;

/// The signs of one part, a bit each.
TETRAD_HD inline std::uint32_t signs_of_part(const SignMask& signs, std::uint32_t part) {
  return signs.word[part / 2] >> (16 * (part % 2)) & 0xFFFFu;
}

/// What a part does alone: signs, and butterflies at strides 1 to 8.
TETRAD_HD inline void begin_rotation(float (&v)[16], std::uint32_t signs) {
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < 16; ++i)
    v[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v[i]) ^ ((signs >> i & 1u) << 31));
  hadamard_butterflies<16, 1>(v);
}
/// Strides 16, 32 and 64 are between parts 1, 2 and 4 apart; in each pair one part is the upper one.
TETRAD_HD inline float butterfly_between_parts(float own, float other, bool is_upper) {
  return is_upper ? other - own : own + other;
}
TETRAD_HD inline void finish_rotation(float (&v)[16]) {
  TETRAD_UNROLL_ON_DEVICE
  for (float& value : v) value = value * hadamard_scale(kRotation);
}

TETRAD_HD inline void pack_row(const float (&v)[16], std::uint32_t (&pairs)[8]) {
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < 8; ++i) pairs[i] = pack_bf16(v[2 * i], v[2 * i + 1]);
}

// --- A block of a row
// ------------------------------------------------------------------------------------------------

/// What codes are found with, and what the block adds to its group.
struct RowPart {
  float amax;
  nvfp4::BlockScale scale;
  nvfp4::Projection sum;
};
/// Of rotated values; also makes every -0 of them +0.
TETRAD_HD inline RowPart part_of_row(const nvfp4::TensorScale& tensor, std::uint32_t (&pairs)[8]) {
  TETRAD_UNROLL_ON_DEVICE
  for (std::uint32_t& pair : pairs) pair = without_negative_zero(pair);
  RowPart part;
  part.amax = std::bit_cast<float>(largest_magnitude(pairs));
  part.scale = fast_block_scale(part.amax, tensor);
  float v[16];
  unpack_row(pairs, v);
  part.sum = projection_of_block(v, part.scale, tensor);
  return part;
}

/// `pairs` become what was quantized; their sign bits are those of the codes.
TETRAD_HD inline RowBlock encode_row_part(const RowPart& part, float correction, std::uint32_t random_byte,
                                          std::uint32_t (&pairs)[8]) {
  const BlockEncoding block = encoding_of(part.amax, part.scale);
  RowBlock result;
  result.scale_byte = nvfp4::corrected_byte(block.byte, correction, random_byte);
  if (block.tame)
    encode_row_values<false, true>({}, kCentredBias, block.encode, pairs, result.magnitudes);
  else
    encode_row_values<false, false>({}, kCentredBias, block.encode, pairs, result.magnitudes);
  return result;
}

// --- A patch of four columns
// -----------------------------------------------------------------------------------------

/// Eight patches below each other are the parts of four groups; four such lie side by side in a warp.
class RotatedPatches {
 public:
  static constexpr std::uint32_t kAbreast = 4;
  static constexpr std::uint32_t kWarpCols = kAbreast * kPatchCols;

  TETRAD_HD explicit RotatedPatches(const QuantProblem& p)
      : patches_(p),
        cols_(static_cast<std::uint32_t>(p.rows)),
        strips_((cols_ + kWarpCols - 1) / kWarpCols) {}

  /// Units of work for a warp.
  TETRAD_HD static std::int64_t units(const QuantProblem& p) {
    return p.cols / kRotation * ((p.rows + kWarpCols - 1) / kWarpCols);
  }
  struct Place {
    PatchPlace patch;
    std::uint32_t part;
    bool inside;
  };
  TETRAD_HD Place place(std::uint32_t unit, std::uint32_t lane) const {
    const std::uint32_t group = unit / strips_;
    const std::uint32_t part = lane / kAbreast;
    const std::uint32_t column = (unit - group * strips_) * kWarpCols + lane % kAbreast * kPatchCols;
    return {{group * kParts + part, column}, part, column < cols_};
  }
  /// Zeros outside of the matrix.
  TETRAD_HD Patch load(const Place& at) const { return at.inside ? patches_.load(at.patch) : Patch{}; }

 private:
  ColumnPatches patches_;
  std::uint32_t cols_, strips_;
};

TETRAD_HD inline void pack_columns(const float (&left)[16], const float (&right)[16], int p, Patch& patch) {
  TETRAD_UNROLL_ON_DEVICE
  for (int r = 0; r < kPatchRows; ++r) patch.pair[r][p] = pack_bf16(left[r], right[r]);
}

/// What each column of a rotated patch adds to its group.
struct PatchSums {
  nvfp4::Projection column[kPatchCols];
};
TETRAD_HD inline PatchSums sums_of_patch(const Patch& patch, const PatchEncoding& encoding,
                                         const nvfp4::TensorScale& tensor) {
  PatchSums sums;
  TETRAD_UNROLL_ON_DEVICE
  for (int p = 0; p < 2; ++p) {
    float left[16];
    float right[16];
    unpack_columns(patch, p, left, right);
    const std::uint32_t bytes = encoding.scale_bytes >> (16 * p);
    sums.column[2 * p] = projection_of_block(left, {bytes & 0xFFu, encoding.encode[2 * p]}, tensor);
    sums.column[2 * p + 1] =
        projection_of_block(right, {bytes >> 8 & 0xFFu, encoding.encode[2 * p + 1]}, tensor);
  }
  return sums;
}

/// The scales that are stored, in the place of those that the codes are found with.
TETRAD_HD inline void correct_patch(const QuantProblem& p, const PatchPlace& at, const PatchSums& groups,
                                    PatchEncoding& encoding) {
  std::uint32_t bytes = 0;
  TETRAD_UNROLL_ON_DEVICE
  for (int c = 0; c < kPatchCols; ++c) {
    const std::uint32_t random =
        p.random_byte_of_block(std::int64_t{at.column} + c, std::int64_t{at.block} * kPatchRows);
    bytes |= nvfp4::corrected_byte(encoding.scale_bytes >> (8 * c) & 0xFFu,
                                   nvfp4::correction(groups.column[c]), random)
             << (8 * c);
  }
  encoding.scale_bytes = bytes;
}

}  // namespace tetrad::cuda
