// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of small f32 matrices in the cache: the tiles of attention and of the scan. They know triangles,
// and strips of a few rows.

#include <cstdint>

namespace tetrad::cpu {

/// Extents of results and of right operands along a row are multiples of this; padding holds zeros.
inline constexpr std::int64_t kVector = 16;

constexpr std::int64_t padded(std::int64_t extent) { return (extent + kVector - 1) / kVector * kVector; }

/// The left operand, [rows, depth], in any order: element (r, k) lies at r * row_stride + k * depth_stride.
struct LeftOperand {
  const float* data;
  std::int64_t row_stride;
  std::int64_t depth_stride;

  LeftOperand from(std::int64_t row, std::int64_t k) const {
    return {data + row * row_stride + k * depth_stride, row_stride, depth_stride};
  }
};

inline LeftOperand straight(const float* data, std::int64_t stride) { return {data, stride, 1}; }
inline LeftOperand transposed(const float* data, std::int64_t stride) { return {data, 1, stride}; }

/// The right operand, [depth, cols].
struct RightOperand {
  const float* data;
  std::int64_t stride;
};

struct Result {
  float* data;
  std::int64_t stride;
};

struct ProductShape {
  std::int64_t rows;
  std::int64_t cols;  //!< a multiple of kVector
  std::int64_t depth;
};

/// out = a . b. Sums run over the depth in ascending order.
void multiply(const ProductShape& shape, const LeftOperand& a, const RightOperand& b, const Result& out);

/// out += a . b.
void multiply_add(const ProductShape& shape, const LeftOperand& a, const RightOperand& b, const Result& out);

// The same where one of the three is a square matrix [size, size] of which only the lower triangle counts.
// They work on whole blocks of kVector: what a block on the diagonal holds above the diagonal must be zero in
// an operand, and is computed in a result; blocks above it are neither read nor written.

/// lower(out) = a . b, with depth `depth`. Rows of out and b have padded(size) elements.
void multiply_to_lower(std::int64_t size, std::int64_t depth, const LeftOperand& a, const RightOperand& b,
                       const Result& out);

/// out += lower(a) . b.
void multiply_add_lower(std::int64_t size, std::int64_t cols, const float* lower, std::int64_t stride,
                        const RightOperand& b, const Result& out);

/// out += lower(a)^T . b.
void multiply_add_lower_transposed(std::int64_t size, std::int64_t cols, const float* lower,
                                   std::int64_t stride, const RightOperand& b, const Result& out);

}  // namespace tetrad::cpu
