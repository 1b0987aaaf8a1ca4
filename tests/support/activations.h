// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrices of activations for tests: BF16 or f32, a column range of a wider matrix.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/gradient.h"
#include "support/values.h"
#include "tetrad/core/matrix.h"

namespace tetrad::testing {

/// Normal numbers, the same every time for the same seed, exact in BF16.
inline Values normal_values(std::int64_t count, unsigned seed, double deviation = 1, double mean = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(mean, deviation);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = round_to_bf16(static_cast<float>(normal(engine)));
  return values;
}

class Activations {
 public:
  /// Full of NaN, which an operation must overwrite.
  Activations(DType dtype, std::int64_t rows, std::int64_t cols)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        f32_(dtype == DType::f32 ? size() : 0, std::numeric_limits<float>::quiet_NaN()),
        bf16_(dtype == DType::bf16 ? size() : 0, Bf16::from_f32(std::numeric_limits<float>::quiet_NaN())) {}

  Activations(DType dtype, std::int64_t rows, std::int64_t cols, const Values& values)
      : Activations(dtype, rows, cols) {
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const auto value = static_cast<float>(values[static_cast<std::size_t>(i)]);
      if (dtype == DType::f32)
        f32_[position(i)] = value;
      else
        bf16_[position(i)] = Bf16::from_f32(value);
    }
  }

  MutableMatrixView mutable_view() {
    void* data = dtype_ == DType::f32 ? static_cast<void*>(&f32_[kBefore]) : &bf16_[kBefore];
    return {data, dtype_, rows_, cols_, stride(), 1};
  }
  MatrixView view() const {
    const void* data = dtype_ == DType::f32 ? static_cast<const void*>(&f32_[kBefore]) : &bf16_[kBefore];
    return {data, dtype_, rows_, cols_, stride(), 1};
  }
  /// `count` rows from `first`.
  MatrixView rows(std::int64_t first, std::int64_t count) const {
    MatrixView part = view();
    const std::int64_t skip = first * stride();
    part.data = dtype_ == DType::f32 ? static_cast<const void*>(static_cast<const float*>(part.data) + skip)
                                     : static_cast<const Bf16*>(part.data) + skip;
    part.rows = count;
    return part;
  }

  Values values() const {
    Values result;
    for (std::int64_t i = 0; i < rows_ * cols_; ++i)
      result.push_back(dtype_ == DType::f32 ? f32_[position(i)] : bf16_[position(i)].to_f32());
    return result;
  }

  /// Nothing was written beside the columns.
  bool surroundings_are_untouched() const {
    std::size_t numbers = 0;
    for (const float value : f32_) numbers += std::isnan(value) ? 0 : 1;
    for (const Bf16 value : bf16_) numbers += std::isnan(value.to_f32()) ? 0 : 1;
    return numbers == static_cast<std::size_t>(rows_ * cols_);
  }

  friend bool operator==(const Activations& a, const Activations& b) {
    for (std::size_t i = 0; i < a.f32_.size(); ++i)
      if (std::bit_cast<std::uint32_t>(a.f32_[i]) != std::bit_cast<std::uint32_t>(b.f32_[i])) return false;
    return a.bf16_ == b.bf16_ && a.f32_.size() == b.f32_.size();
  }

 private:
  static constexpr std::int64_t kBefore = 3;  //!< columns of the wider matrix, so that nothing is aligned
  static constexpr std::int64_t kAfter = 2;

  std::int64_t stride() const { return kBefore + cols_ + kAfter; }
  std::size_t size() const { return static_cast<std::size_t>(rows_ * stride()); }
  std::size_t position(std::int64_t i) const {
    return static_cast<std::size_t>(i / cols_ * stride() + kBefore + i % cols_);
  }

  DType dtype_;
  std::int64_t rows_, cols_;
  std::vector<float> f32_;
  std::vector<Bf16> bf16_;
};

/// Compares a gradient with central differences of `loss`, a function of `x` in double precision, at up to
/// `samples` elements spread over x. The error is relative to the largest element of `gradient`.
inline double gradient_error(const Values& gradient, const Values& x,
                             const std::function<double(const Values&)>& loss, std::size_t samples = 40) {
  std::vector<std::size_t> chosen;
  std::mt19937 engine(1);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x.size() <= samples || engine() % x.size() < samples) chosen.push_back(i);
  Values point;
  for (const std::size_t i : chosen) point.push_back(x[i]);
  const auto loss_at = [&](const Values& moved) {
    Values all = x;
    for (std::size_t i = 0; i < chosen.size(); ++i) all[chosen[i]] = moved[i];
    return loss(all);
  };
  const Values expected = numeric_gradient(loss_at, point);
  double largest = 0;
  for (const double value : gradient) largest = std::max(largest, std::abs(value));
  double error = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const double difference = std::abs(gradient[chosen[i]] - expected[i]);
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
  }
  return largest == 0 ? error : error / largest;
}

}  // namespace tetrad::testing
