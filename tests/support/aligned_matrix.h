// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrices whose rows are aligned to 16 bytes: what models give to backends, which have their fast forms for
// it. The views of Activations, which start anywhere, never reach those.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "support/activations.h"
#include "tetrad/core/matrix.h"

namespace tetrad::testing {

/// Columns of a wider matrix of BF16 or f32; before and after them are NaN. `cols` is a multiple of 8.
template <typename T>
class AlignedMatrix {
 public:
  /// Full of NaN, which an operation must overwrite.
  AlignedMatrix(std::int64_t rows, std::int64_t cols)
      : rows_(rows), cols_(cols), blocks_(static_cast<std::size_t>(rows * stride() / kAligned)) {
    for (Block& block : blocks_)
      for (T& value : block.values) value = from_f64(NAN);
  }
  AlignedMatrix(std::int64_t rows, std::int64_t cols, const Values& values) : AlignedMatrix(rows, cols) {
    for (std::int64_t i = 0; i < rows * cols; ++i) at(i) = from_f64(values[static_cast<std::size_t>(i)]);
  }

  MatrixView view(std::int64_t first, std::int64_t count) const {
    return {&blocks_[static_cast<std::size_t>(first * stride() / kAligned + 1)],
            kDType,
            count,
            cols_,
            stride(),
            1};
  }
  MatrixView view() const { return view(0, rows_); }
  MutableMatrixView mutable_view() { return {&blocks_[1], kDType, rows_, cols_, stride(), 1}; }

  Values values() const {
    Values result;
    for (std::int64_t i = 0; i < rows_ * cols_; ++i) result.push_back(to_f64(at(i)));
    return result;
  }
  bool surroundings_are_untouched() const {
    std::int64_t numbers = 0;
    for (const Block& block : blocks_)
      for (const T value : block.values) numbers += std::isnan(to_f64(value)) ? 0 : 1;
    return numbers == rows_ * cols_;
  }
  bool same_bytes(const AlignedMatrix& other) const {
    return blocks_.size() == other.blocks_.size() &&
           std::memcmp(blocks_.data(), other.blocks_.data(), blocks_.size() * sizeof(Block)) == 0;
  }

 private:
  static constexpr DType kDType = std::is_same_v<T, float> ? DType::f32 : DType::bf16;
  static constexpr std::int64_t kAligned = 8;
  struct alignas(16) Block {
    T values[kAligned];
  };

  static T from_f64(double value) {
    if constexpr (std::is_same_v<T, float>)
      return static_cast<float>(value);
    else
      return Bf16::from_f32(static_cast<float>(value));
  }
  static double to_f64(T value) {
    if constexpr (std::is_same_v<T, float>)
      return value;
    else
      return value.to_f32();
  }

  std::int64_t stride() const { return kAligned + cols_ + 2 * kAligned; }
  T& at(std::int64_t i) { return const_cast<T&>(std::as_const(*this).at(i)); }
  const T& at(std::int64_t i) const {
    const std::int64_t place = i / cols_ * stride() + kAligned + i % cols_;
    return blocks_[static_cast<std::size_t>(place / kAligned)].values[place % kAligned];
  }

  std::int64_t rows_, cols_;
  std::vector<Block> blocks_;
};

}  // namespace tetrad::testing
