// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrices as operations get them: f32 or BF16, whole or a range of columns of a wider one, with guards
// around so that a write outside is seen.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "support/backends.h"
#include "support/values.h"
#include "tetrad/core/matrix.h"
#include "tetrad/core/threads.h"

namespace tetrad::testing {

inline std::vector<double> random_values(std::int64_t count, unsigned seed, double scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = static_cast<double>(static_cast<float>(normal(generator)));
  return values;
}

/// How an operation sees its matrices.
struct Storage {
  DType dtype = DType::f32;
  bool strided = false;  //!< columns 5 … of a matrix that is 8 wider
};

class TestMatrix {
 public:
  TestMatrix(Storage storage, std::int64_t rows, std::int64_t cols, const std::vector<double>& values)
      : TestMatrix(storage, rows, cols) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) set(r, c, values[static_cast<std::size_t>(r * cols + c)]);
  }
  /// Full of guards: for outputs.
  TestMatrix(Storage storage, std::int64_t rows, std::int64_t cols)
      : dtype_(storage.dtype),
        rows_(rows),
        cols_(cols),
        stride_(cols + (storage.strided ? 8 : 0)),
        first_(storage.strided ? 5 : 0) {
    const auto size = static_cast<std::size_t>(rows * stride_);
    if (dtype_ == DType::f32)
      f32_.assign(size, kGuard);
    else
      bf16_.assign(size, Bf16::from_f32(kGuard));
  }

  MatrixView view() const {
    return {dtype_ == DType::f32 ? static_cast<const void*>(f32_.data() + first_)
                                 : static_cast<const void*>(bf16_.data() + first_),
            dtype_,
            rows_,
            cols_,
            stride_,
            1};
  }
  MutableMatrixView mutable_view() {
    return {const_cast<void*>(view().data), dtype_, rows_, cols_, stride_, 1};
  }

  /// What is stored, exactly: after rounding to the storage type.
  std::vector<double> values() const {
    std::vector<double> result;
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t c = 0; c < cols_; ++c) result.push_back(static_cast<double>(at(r, c + first_)));
    return result;
  }

  bool guards_untouched() const {
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t c = 0; c < stride_; ++c)
        if ((c < first_ || c >= first_ + cols_) && at(r, c) != kGuard) return false;
    return true;
  }

  bool same_bytes(const TestMatrix& other) const {
    return f32_.size() == other.f32_.size() && bf16_ == other.bf16_ &&
           (f32_.empty() || std::memcmp(f32_.data(), other.f32_.data(), f32_.size() * sizeof(float)) == 0);
  }

 private:
  static constexpr float kGuard = -7.0f;

  float at(std::int64_t row, std::int64_t col) const {
    const auto index = static_cast<std::size_t>(row * stride_ + col);
    return dtype_ == DType::f32 ? f32_[index] : bf16_[index].to_f32();
  }
  void set(std::int64_t row, std::int64_t col, double value) {
    const auto index = static_cast<std::size_t>(row * stride_ + col + first_);
    if (dtype_ == DType::f32)
      f32_[index] = static_cast<float>(value);
    else
      bf16_[index] = Bf16::from_f32(static_cast<float>(value));
  }

  DType dtype_;
  std::int64_t rows_, cols_, stride_, first_;
  std::vector<float> f32_;
  std::vector<Bf16> bf16_;
};

/// |actual - expected| at most `tolerance` of the largest expected value, plus, for BF16, the rounding of
/// each element: half a step, 2^-8 of its own magnitude.
inline ::testing::AssertionResult close(const std::vector<double>& actual,
                                        const std::vector<double>& expected, DType dtype, double tolerance) {
  if (actual.size() != expected.size())
    return ::testing::AssertionFailure() << actual.size() << " elements instead of " << expected.size();
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double rounding = dtype == DType::bf16 ? 0x1p-8 * std::abs(expected[i]) : 0;
    const double allowed = (tolerance * largest) * (dtype == DType::bf16 ? 1 + 0x1p-8 : 1) + rounding;
    if (!(std::abs(actual[i] - expected[i]) <= allowed))
      return ::testing::AssertionFailure()
             << "element " << i << " is " << actual[i] << " instead of " << expected[i] << " +- " << allowed;
  }
  return ::testing::AssertionSuccess();
}
inline ::testing::AssertionResult close(const std::vector<float>& actual, const std::vector<double>& expected,
                                        double tolerance) {
  return close(to_f64(actual), expected, DType::f32, tolerance);
}

inline std::vector<double> sum_of(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> sum(a);
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] += b[i];
  return sum;
}

/// Calls body(backend) with 1 thread and with 2 and expects the two results to be equal (by ==, on bytes).
template <typename Body>
void expect_same_for_any_threads(const std::string& name, const Body& body) {
  EXPECT_TRUE(body(backend(name, 1)) == body(backend(name, 2)))
      << "the result depends on the number of threads";
}

/// Everything an operation's tests run over.
class OpTest : public ::testing::TestWithParam<std::tuple<std::string, DType, bool>> {
 protected:
  const std::string& backend_name() { return std::get<0>(GetParam()); }
  Backend& device() { return backend(backend_name()); }
  Storage storage() { return {std::get<1>(GetParam()), std::get<2>(GetParam())}; }
  DType dtype() { return std::get<1>(GetParam()); }
};

inline std::string op_test_name(const ::testing::TestParamInfo<OpTest::ParamType>& info) {
  return std::get<0>(info.param) + "_" + std::string(name_of(std::get<1>(info.param))) +
         (std::get<2>(info.param) ? "_strided" : "");
}

#define TETRAD_INSTANTIATE_OP_TEST(name)                                                                   \
  INSTANTIATE_TEST_SUITE_P(                                                                                \
      All, name,                                                                                           \
      ::testing::Combine(::testing::ValuesIn(backend_names()), ::testing::Values(DType::f32, DType::bf16), \
                         ::testing::Bool()),                                                               \
      op_test_name)

}  // namespace tetrad::testing
