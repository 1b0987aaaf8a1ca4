// SPDX-License-Identifier: Apache-2.0
#pragma once
// Borrowed two-dimensional data. One of the strides is 1; transposing swaps extents and strides and moves
// nothing.

#include <cstdint>
#include <utility>

#include "tetrad/core/dtype.h"
#include "tetrad/numerics/bf16.h"

namespace tetrad {

template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<Bf16>() {
  return DType::bf16;
}

namespace detail {

/// `Void` is `const void` for a read-only view and `void` for a writable one.
template <typename Void>
struct BasicMatrixView {
  Void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  //!< in elements
  std::int64_t col_stride = 1;

  std::int64_t size() const { return rows * cols; }
  bool is_row_major() const { return col_stride == 1; }
  BasicMatrixView transposed() const { return {data, dtype, cols, rows, col_stride, row_stride}; }
};

}  // namespace detail

using MatrixView = detail::BasicMatrixView<const void>;
using MutableMatrixView = detail::BasicMatrixView<void>;

/// A contiguous row-major matrix of f32 or BF16.
template <typename T>
MatrixView view_of(const T* data, std::int64_t rows, std::int64_t cols) {
  return {data, dtype_of<T>(), rows, cols, cols, 1};
}
template <typename T>
MutableMatrixView mutable_view_of(T* data, std::int64_t rows, std::int64_t cols) {
  return {data, dtype_of<T>(), rows, cols, cols, 1};
}

}  // namespace tetrad
