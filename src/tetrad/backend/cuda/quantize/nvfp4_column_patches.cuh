// SPDX-License-Identifier: Apache-2.0
#pragma once
// The 16 x 4 patches of a BF16 matrix, counted along its rows of memory, as threads reach them: neighbouring
// threads have neighbouring columns. (Nothing here knows of threads: tests call it without a device.)

#include <cstdint>

#include "tetrad/backend/cuda/quantize/nvfp4_columns.cuh"

namespace tetrad::cuda {

struct PatchPlace {
  std::uint32_t block, column;  //!< 16 rows of memory; first column
};

class ColumnPatches {
 public:
  /// The matrix as consumed is the transposed one: its rows are columns of memory.
  TETRAD_HD explicit ColumnPatches(const QuantProblem& p)
      : x_(static_cast<const Bf16*>(p.x)),
        stride_(p.col_stride),
        per_row_(static_cast<std::uint32_t>(p.rows / kPatchCols)),
        count_(static_cast<std::uint32_t>(p.cols / kPatchRows) * per_row_) {}

  TETRAD_HD std::uint32_t count() const { return count_; }
  TETRAD_HD PatchPlace place(std::uint32_t index) const {
    const std::uint32_t block = index / per_row_;
    return {block, (index - block * per_row_) * kPatchCols};
  }
  TETRAD_HD Patch load(const PatchPlace& at) const {
    const Bf16* first = x_ + std::int64_t{at.block} * kPatchRows * stride_ + at.column;
    Patch patch;
    TETRAD_UNROLL_ON_DEVICE
    for (int r = 0; r < kPatchRows; ++r) {
      const TwoWords row = *reinterpret_cast<const TwoWords*>(first + r * stride_);
      patch.pair[r][0] = row.word[0];
      patch.pair[r][1] = row.word[1];
    }
    return patch;
  }

 private:
  const Bf16* x_;
  std::int64_t stride_;
  std::uint32_t per_row_, count_;
};

/// Casts a patch and stores its codes or values, column-major.
template <bool kStochastic, bool kOperand, bool kTame>
TETRAD_HD inline void store_patch(const QuantProblem& p, const PatchPlace& at, const PatchEncoding& encoding,
                                  bool poisoned, const PhiloxWords (&random)[kPatchCols], Patch& patch) {
  std::uint32_t scales[2];
  if constexpr (kOperand) {
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t bytes = encoding.scale_bytes >> (16 * i);
      scales[i] =
          poisoned ? 0x7FFF7FFFu : pack_bf16(E4m3::decode(bytes & 0xFFu), E4m3::decode(bytes >> 8 & 0xFFu));
    }
  }
  const std::int64_t row = std::int64_t{at.block} * kPatchRows;  // in memory
  const std::uint32_t bias = bias_of(p);
  TETRAD_UNROLL_ON_DEVICE
  for (int k = 0; k < kPatchRows / 2; ++k) {
    const auto word = static_cast<std::size_t>(k / 2);
    const std::uint32_t words[kPatchCols] = {random[0][word], random[1][word], random[2][word],
                                             random[3][word]};
    const std::uint32_t magnitudes = encode_row_pair<kStochastic, kTame>(patch, k, encoding, words, bias);
    if constexpr (kOperand) {
      column_operand(magnitudes, scales, patch, k);
      auto* out = static_cast<Bf16*>(p.codes) + (row + 2 * k) * p.rows + at.column;
      *reinterpret_cast<TwoWords*>(out) = {{patch.pair[2 * k][0], patch.pair[2 * k][1]}};
      *reinterpret_cast<TwoWords*>(out + p.rows) = {{patch.pair[2 * k + 1][0], patch.pair[2 * k + 1][1]}};
    } else {
      auto* out = static_cast<std::uint8_t*>(p.codes) + (row / 2 + k) * p.rows + at.column;
      *reinterpret_cast<std::uint32_t*>(out) = poisoned ? 0u : column_codes(magnitudes, patch, k);
    }
  }
}

/// Stores the result for a patch whose scales are known.
template <bool kStochastic, bool kOperand>
TETRAD_HD inline void store_encoded_patch(const QuantProblem& p, const PatchPlace& at,
                                          const PatchEncoding& encoding, bool poisoned,
                                          const PhiloxWords (&random)[kPatchCols], Patch& patch) {
  if constexpr (!kOperand) {
    auto* out = static_cast<std::uint8_t*>(p.scales) + at.block * p.rows + at.column;
    *reinterpret_cast<std::uint32_t*>(out) = poisoned ? 0u : encoding.scale_bytes;
  }
  if (encoding.tame)
    store_patch<kStochastic, kOperand, true>(p, at, encoding, poisoned, random, patch);
  else
    store_patch<kStochastic, kOperand, false>(p, at, encoding, poisoned, random, patch);
}

/// Encodes a patch and stores the result.
template <Transform kTransform, bool kStochastic, bool kOperand, bool kChoice>
TETRAD_HD inline void encode_patch(const QuantProblem& p, const nvfp4::TensorScale& tensor, bool poisoned,
                                   const PatchPlace& at, Patch& patch) {
  transform_patch<kTransform>(patch);
  const PatchEncoding encoding = encoding_of<kChoice>(patch, tensor, p.scaling);
  PhiloxWords random[kPatchCols] = {};
  if constexpr (kStochastic) {
    TETRAD_UNROLL_ON_DEVICE
    for (int c = 0; c < kPatchCols; ++c)
      random[c] = p.random_words(std::int64_t{at.column} + c, std::int64_t{at.block} * kPatchRows);
  }
  store_encoded_patch<kStochastic, kOperand>(p, at, encoding, poisoned, random, patch);
}

}  // namespace tetrad::cuda
