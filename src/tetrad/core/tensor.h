// SPDX-License-Identifier: Apache-2.0
#pragma once
// An owned row-major matrix; activations are [tokens, width], parameters [out, in] or [1, size].

#include <cstdint>

#include "tetrad/core/buffer.h"
#include "tetrad/core/matrix.h"

namespace tetrad {

class Tensor {
 public:
  Tensor() = default;
  /// Takes a buffer of at least rows * cols elements, from Backend::allocate.
  Tensor(Buffer buffer, DType dtype, std::int64_t rows, std::int64_t cols)
      : buffer_(std::move(buffer)), dtype_(dtype), rows_(rows), cols_(cols) {}

  /// Whether such a matrix fits into the memory that is there; if so, it is that from now on.
  bool refit(DType dtype, std::int64_t rows, std::int64_t cols) {
    if (!buffer_.refit(static_cast<std::size_t>(rows * cols * bits_of(dtype) / 8))) return false;
    dtype_ = dtype;
    rows_ = rows;
    cols_ = cols;
    return true;
  }

  DType dtype() const { return dtype_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t size() const { return rows_ * cols_; }

  MatrixView view() const { return {buffer_.data(), dtype_, rows_, cols_, cols_, 1}; }
  MutableMatrixView view() { return {buffer_.data(), dtype_, rows_, cols_, cols_, 1}; }
  MatrixView const_view() const { return view(); }

  float* f32() { return buffer_.as<float>(); }
  const float* f32() const { return buffer_.as<float>(); }
  const std::int32_t* i32() const { return buffer_.as<std::int32_t>(); }
  std::span<const std::byte> bytes() const { return {buffer_.data(), buffer_.size()}; }
  std::span<std::byte> bytes() { return {buffer_.data(), buffer_.size()}; }

 private:
  Buffer buffer_;
  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
};

/// Columns [first, first + count) of a row-major view: queries, keys and values of one projection lie side by
/// side.
template <typename View>
View columns(View view, std::int64_t first, std::int64_t count) {
  const auto offset = static_cast<std::size_t>(first) * static_cast<std::size_t>(bits_of(view.dtype)) / 8;
  using Byte = std::conditional_t<std::is_same_v<View, MatrixView>, const std::byte, std::byte>;
  view.data = static_cast<Byte*>(view.data) + offset;
  view.cols = count;
  return view;
}

/// Rows [first, first + count) of a row-major view.
template <typename View>
View rows(View view, std::int64_t first, std::int64_t count) {
  const std::int64_t row_count = count;
  View result = columns(view, first * view.row_stride, view.cols);
  result.rows = row_count;
  return result;
}

inline MatrixView as_const(const MutableMatrixView& view) {
  return {view.data, view.dtype, view.rows, view.cols, view.row_stride, view.col_stride};
}

}  // namespace tetrad
