// SPDX-License-Identifier: Apache-2.0
// Products at the edges: shapes that fill no tile, strides, what is not finite or barely normal. BF16
// operands and f32 copies of them, which may be served by different kernels, are held to the same bounds.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "oracle/inputs.h"
#include "support/backends.h"
#include "support/quant_cases.h"
#include "tetrad/core/threads.h"

namespace tetrad::testing::gemm_edges_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  std::int64_t m, n, k;
};

/// A matrix of BF16 values, [rows, cols], stored with a stride and possibly transposed, as BF16 and as f32.
class Dense {
 public:
  Dense(std::int64_t rows, std::int64_t cols, bool transposed, std::int64_t gap)
      : rows_(rows), cols_(cols), transposed_(transposed), stride_((transposed ? rows : cols) + gap) {
    const std::int64_t lines = transposed ? cols : rows;
    // What lies between the lines would show in every sum.
    f32_.assign(static_cast<std::size_t>(lines * stride_), kNan);
    const std::vector<float> values = oracle::rounded_to_bf16(oracle::make_input("gaussian", rows, cols));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        f32_[index(r, c)] = values[static_cast<std::size_t>(r * cols + c)];
    update();
  }

  void set(std::int64_t row, std::int64_t col, float value) {
    f32_[index(row, col)] = value;
    update();
  }
  /// The values of a quantized tensor, in f32 only.
  void fill(Backend& device, const QuantizedTensor& tensor) {
    device.dequantize(tensor, mutable_view_of(f32_.data(), rows_, cols_));
  }
  Dense turned() const {
    Dense result = *this;
    std::swap(result.rows_, result.cols_);
    result.transposed_ = !transposed_;
    return result;
  }
  double at(std::int64_t row, std::int64_t col) const { return f32_[index(row, col)]; }

  GemmOperand operand(DType dtype) const {
    const void* data = dtype == DType::bf16 ? static_cast<const void*>(bf16_.data()) : f32_.data();
    if (!transposed_) return MatrixView{data, dtype, rows_, cols_, stride_, 1};
    return GemmOperand(MatrixView{data, dtype, cols_, rows_, stride_, 1}).transposed();
  }

 private:
  std::size_t index(std::int64_t row, std::int64_t col) const {
    return static_cast<std::size_t>(transposed_ ? col * stride_ + row : row * stride_ + col);
  }
  void update() {
    bf16_.clear();
    for (const float x : f32_) bf16_.push_back(Bf16::from_f32(x));
  }

  std::int64_t rows_, cols_;
  bool transposed_;
  std::int64_t stride_;
  std::vector<float> f32_;
  std::vector<Bf16> bf16_;
};

/// out[i, j] is `start` + the product, to within the roundings of an f32 sum.
void expect_product(const Dense& a, const Dense& b, const Shape& shape, const std::vector<float>& out,
                    std::int64_t stride, double start) {
  for (std::int64_t i = 0; i < shape.m; ++i)
    for (std::int64_t j = 0; j < shape.n; ++j) {
      double sum = start;
      double magnitude = std::abs(start);
      for (std::int64_t k = 0; k < shape.k; ++k) {
        sum += a.at(i, k) * b.at(j, k);
        magnitude += std::abs(a.at(i, k) * b.at(j, k));
      }
      ASSERT_NEAR(out[static_cast<std::size_t>(i * stride + j)], sum,
                  0x1p-24 * static_cast<double>(shape.k + 8) * magnitude)
          << "element " << i << ", " << j << " of " << shape.m << " x " << shape.n << " x " << shape.k;
    }
}

class GemmEdges : public ::testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  Backend& on_threads(int count) { return backend(std::get<0>(GetParam()), count); }
  Backend& device() { return on_threads(0); }
  DType dtype() const { return std::get<1>(GetParam()); }
};

TEST_P(GemmEdges, AnyShapeOrderAndStride) {
  constexpr std::int64_t kGap = 3;
  for (const Shape& shape :
       {Shape{1, 1, 1}, Shape{3, 5, 2}, Shape{7, 17, 15}, Shape{9, 49, 33}, Shape{33, 65, 127},
        Shape{1, 200, 513}, Shape{70, 1, 1025}, Shape{41, 100, 1111}, Shape{300, 6, 40}})
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true}) {
        const Dense a(shape.m, shape.k, a_transposed, kGap);
        const Dense b(shape.n, shape.k, b_transposed, kGap + 1);
        const std::int64_t stride = shape.n + kGap;
        std::vector<float> out(static_cast<std::size_t>(shape.m * stride), -7.0f);
        const MutableMatrixView view{out.data(), DType::f32, shape.m, shape.n, stride, 1};
        device().gemm(a.operand(dtype()), b.operand(dtype()), view, Accumulate::yes);
        expect_product(a, b, shape, out, stride, -7.0);
        device().gemm(a.operand(dtype()), b.operand(dtype()), view);
        expect_product(a, b, shape, out, stride, 0.0);
        std::vector<Bf16> rounded(out.size(), Bf16::from_f32(-7.0f));
        device().gemm(a.operand(dtype()), b.operand(dtype()),
                      {rounded.data(), DType::bf16, shape.m, shape.n, stride, 1});
        for (std::size_t i = 0; i < out.size(); ++i)  // the gaps too
          ASSERT_EQ(rounded[i].bits, Bf16::from_f32(out[i]).bits) << "element " << i;
      }
}

TEST_P(GemmEdges, InfinityAndNanReachTheirRowsAndColumnsOnly) {
  constexpr Shape kShape{20, 50, 600};
  Dense a(kShape.m, kShape.k, false, 0);
  Dense b(kShape.n, kShape.k, true, 0);
  a.set(3, 599, kInfinity);
  b.set(40, 0, kNan);
  b.set(7, 599, 0.0f);
  std::vector<float> out(static_cast<std::size_t>(kShape.m * kShape.n));
  device().gemm(a.operand(dtype()), b.operand(dtype()), mutable_view_of(out.data(), kShape.m, kShape.n));
  for (std::int64_t i = 0; i < kShape.m; ++i)
    for (std::int64_t j = 0; j < kShape.n; ++j) {
      const float value = out[static_cast<std::size_t>(i * kShape.n + j)];
      if (j == 40 || (i == 3 && j == 7))
        ASSERT_TRUE(std::isnan(value)) << i << ", " << j;  // NaN, or 0 x infinity
      else if (i == 3)
        ASSERT_EQ(value, std::copysign(kInfinity, static_cast<float>(b.at(j, 599)))) << j;
      else
        ASSERT_TRUE(std::isfinite(value)) << i << ", " << j;
    }
  // Infinities of both signs cancel to NaN; a finite product that is too large is infinite.
  Dense x(1, 2, false, 0);
  Dense ones(1, 2, false, 0);
  ones.set(0, 0, 1.0f);
  ones.set(0, 1, 1.0f);
  std::vector<float> one(1);
  x.set(0, 0, kInfinity);
  x.set(0, 1, -kInfinity);
  device().gemm(x.operand(dtype()), ones.operand(dtype()), mutable_view_of(one.data(), 1, 1));
  EXPECT_TRUE(std::isnan(one[0]));
  x.set(0, 0, 0x1p127f);
  x.set(0, 1, 0x1p127f);
  device().gemm(x.operand(dtype()), ones.operand(dtype()), mutable_view_of(one.data(), 1, 1));
  EXPECT_EQ(one[0], kInfinity);
}

TEST_P(GemmEdges, NormalNumbersCountInFullAndSubnormalOnesAtMostByTheirValue) {
  Dense x(1, 2, false, 0);
  Dense y(1, 2, false, 0);
  std::vector<float> out(1);
  const auto product = [&](float x0, float y0, float x1, float y1) {
    x.set(0, 0, x0);
    y.set(0, 0, y0);
    x.set(0, 1, x1);
    y.set(0, 1, y1);
    device().gemm(x.operand(dtype()), y.operand(dtype()), mutable_view_of(out.data(), 1, 1));
    return out[0];
  };
  EXPECT_EQ(product(0x1p-126f, 0x1p100f, 0, 0), 0x1p-26f);
  EXPECT_EQ(product(0x1p-63f, 0x1p-63f, 0, 0), 0x1p-126f);
  EXPECT_NEAR(product(0x1p-130f, 0x1p100f, 1, 1), 1.0, 0x1p-30);
  EXPECT_NEAR(product(0x1p-70f, 0x1p-70f, 0x1p-70f, 0x1p-70f), 0.0, 0x1p-126);
}

TEST_P(GemmEdges, IsTheSameBitForBitFromOneThreadAndFromMore) {
  for (const Shape& shape : {Shape{290, 1600, 100}, Shape{90, 130, 1300}, Shape{2, 700, 520}}) {
    const Dense a(shape.m, shape.k, false, 0);
    const Dense b(shape.n, shape.k, true, 0);
    std::vector<float> one(static_cast<std::size_t>(shape.m * shape.n));
    std::vector<float> more(one.size());
    on_threads(1).gemm(a.operand(dtype()), b.operand(dtype()), mutable_view_of(one.data(), shape.m, shape.n));
    for (const int threads : {2, 3}) {
      on_threads(threads).gemm(a.operand(dtype()), b.operand(dtype()),
                               mutable_view_of(more.data(), shape.m, shape.n));
      EXPECT_EQ(std::memcmp(one.data(), more.data(), one.size() * sizeof(float)), 0) << threads << " threads";
    }
  }
}

// Every quantizer, codes in both orders, used both ways round, with rows that fill no tile.
TEST_P(GemmEdges, EveryQuantizedOperandTimesADenseOne) {
  constexpr std::int64_t kCols = 640;
  constexpr std::int64_t kOther = 50;
  for (const QuantCase& quantizer : quant_cases()) {
    const std::int64_t rows = quantizer.spec.block.rows > 1 ? 48 : 37;
    const std::vector<float> x = oracle::make_input("gaussian", rows, kCols);
    for (const CodeOrder order : {CodeOrder::row_major, CodeOrder::col_major}) {
      SCOPED_TRACE(quantizer.name + (order == CodeOrder::row_major ? ", rows" : ", columns"));
      QuantizedTensor q;
      device().quantize(view_of(x.data(), rows, kCols), quantizer.spec, {.order = order}, q);
      Dense values(rows, kCols, false, 0);
      values.fill(device(), q);
      const Dense b(kOther, kCols, false, 0);
      std::vector<float> out(static_cast<std::size_t>(rows * kOther));
      device().gemm(q, b.operand(dtype()), mutable_view_of(out.data(), rows, kOther));
      expect_product(values, b, {rows, kOther, kCols}, out, kOther, 0.0);

      const Dense c(kOther, rows, true, 0);
      std::vector<float> turned(static_cast<std::size_t>(kOther * kCols));
      device().gemm(c.operand(dtype()), GemmOperand(q).transposed(),
                    mutable_view_of(turned.data(), kOther, kCols));
      expect_product(c, values.turned(), {kOther, kCols, rows}, turned, kCols, 0.0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GemmEdges,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::Values(DType::bf16, DType::f32)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" +
                                  std::string(name_of(std::get<1>(test.param)));
                         });

}  // namespace
}  // namespace tetrad::testing::gemm_edges_test
