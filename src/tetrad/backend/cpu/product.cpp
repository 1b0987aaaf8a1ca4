// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/product.h"

#include <algorithm>

#include "tetrad/backend/cpu/simd.h"

namespace tetrad::cpu {
namespace {

// A block of the result that stays in registers: as many as there are, less what the operands need.
#if defined(__AVX512F__)
constexpr int kBlockRows = 8;
constexpr int kBlockWidth = 2 * kVector;
#else
constexpr int kBlockRows = 6;
constexpr int kBlockWidth = kVector;
#endif

template <int kRows, int kWidth, bool kAdd>
void multiply_block(std::int64_t depth, const LeftOperand& a, const RightOperand& b, const Result& out) {
  constexpr int kVectors = kWidth / kNativeLanes;
  F32xN sums[kRows][kVectors];
  TETRAD_UNROLL
  for (int r = 0; r < kRows; ++r) TETRAD_UNROLL
  for (int v = 0; v < kVectors; ++v)
    sums[r][v] = kAdd ? load_native(out.data + r * out.stride + v * kNativeLanes) : F32xN{};

  const float* left = a.data;
  const float* right = b.data;
  for (std::int64_t k = 0; k < depth; ++k, left += a.depth_stride, right += b.stride) {
    F32xN row[kVectors];
    TETRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) row[v] = load_native(right + v * kNativeLanes);
    TETRAD_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float factor = left[r * a.row_stride];
      TETRAD_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fused(factor, row[v], sums[r][v]);
    }
  }
  TETRAD_UNROLL
  for (int r = 0; r < kRows; ++r) TETRAD_UNROLL
  for (int v = 0; v < kVectors; ++v) store_native(sums[r][v], out.data + r * out.stride + v * kNativeLanes);
}

/// The last rows, fewer than kRows + 1 of them.
template <int kRows, int kWidth, bool kAdd>
void multiply_last(std::int64_t rows, std::int64_t depth, const LeftOperand& a, const RightOperand& b,
                   const Result& out) {
  if constexpr (kRows > 0) {
    if (rows == kRows)
      multiply_block<kRows, kWidth, kAdd>(depth, a, b, out);
    else
      multiply_last<kRows - 1, kWidth, kAdd>(rows, depth, a, b, out);
  }
}

template <int kWidth, bool kAdd>
void multiply_columns(std::int64_t rows, std::int64_t depth, const LeftOperand& a, const RightOperand& b,
                      const Result& out) {
  std::int64_t row = 0;
  for (; row + kBlockRows <= rows; row += kBlockRows)
    multiply_block<kBlockRows, kWidth, kAdd>(depth, a.from(row, 0), b,
                                             {out.data + row * out.stride, out.stride});
  multiply_last<kBlockRows - 1, kWidth, kAdd>(rows - row, depth, a.from(row, 0), b,
                                              {out.data + row * out.stride, out.stride});
}

template <bool kAdd>
void multiply_any(const ProductShape& shape, const LeftOperand& a, const RightOperand& b, const Result& out) {
  std::int64_t col = 0;
  for (; col + kBlockWidth <= shape.cols; col += kBlockWidth)
    multiply_columns<kBlockWidth, kAdd>(shape.rows, shape.depth, a, {b.data + col, b.stride},
                                        {out.data + col, out.stride});
  for (; col < shape.cols; col += kVector)
    multiply_columns<kVector, kAdd>(shape.rows, shape.depth, a, {b.data + col, b.stride},
                                    {out.data + col, out.stride});
}

}  // namespace

void multiply(const ProductShape& shape, const LeftOperand& a, const RightOperand& b, const Result& out) {
  multiply_any<false>(shape, a, b, out);
}

void multiply_add(const ProductShape& shape, const LeftOperand& a, const RightOperand& b, const Result& out) {
  multiply_any<true>(shape, a, b, out);
}

void multiply_to_lower(std::int64_t size, std::int64_t depth, const LeftOperand& a, const RightOperand& b,
                       const Result& out) {
  for (std::int64_t row = 0; row < size; row += kVector)
    multiply_any<false>({std::min(kVector, size - row), row + kVector, depth}, a.from(row, 0), b,
                        {out.data + row * out.stride, out.stride});
}

void multiply_add_lower(std::int64_t size, std::int64_t cols, const float* lower, std::int64_t stride,
                        const RightOperand& b, const Result& out) {
  for (std::int64_t row = 0; row < size; row += kVector)
    multiply_any<true>({std::min(kVector, size - row), cols, std::min(row + kVector, size)},
                       straight(lower + row * stride, stride), b, {out.data + row * out.stride, out.stride});
}

void multiply_add_lower_transposed(std::int64_t size, std::int64_t cols, const float* lower,
                                   std::int64_t stride, const RightOperand& b, const Result& out) {
  for (std::int64_t row = 0; row < size; row += kVector)
    multiply_any<true>({std::min(kVector, size - row), cols, size - row},
                       transposed(lower + row * stride + row, stride), {b.data + row * b.stride, b.stride},
                       {out.data + row * out.stride, out.stride});
}

}  // namespace tetrad::cpu
