// SPDX-License-Identifier: Apache-2.0
// The quantized product of every backend against double precision over the very values that were decoded.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "oracle/inputs.h"
#include "support/backends.h"
#include "support/linear_oracle.h"
#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad::testing::gemm_test {
namespace {

struct Shape {
  std::int64_t m, n, k;
};

/// An operand in one of the forms a GEMM takes, and the exact values it stands for, [rows, k].
struct TestOperand {
  std::vector<float> dense;
  std::vector<Bf16> dense_bf16;
  QuantizedTensor quantized;
  MatrixView view;
  bool is_quantized = false;
  bool used_transposed = false;
  std::vector<double> values;

  GemmOperand operand() const {
    const GemmOperand result = is_quantized ? GemmOperand(quantized) : GemmOperand(view);
    return used_transposed ? result.transposed() : result;
  }
};

/// What GEMMs multiply: BF16 recipe, NVFP4 recipe (1x16 along K; 16x16 weights, straight and transposed;
/// token-wise in place with RHT), the other formats, and f32.
enum class Form {
  f32,
  f32_transposed,
  bf16,
  bf16_transposed,
  nvfp4,
  nvfp4_2d_transposed,
  nvfp4_in_place_rht,
  nvfp4_search,
  mxfp4,
  fp8,
  fp8_in_place,
  fp8_2d,
  fp8_2d_transposed,
  fp8_tensor,
};

std::string name_of(Form form) {
  constexpr const char* kNames[] = {"f32",
                                    "f32_transposed",
                                    "bf16",
                                    "bf16_transposed",
                                    "nvfp4",
                                    "nvfp4_2d_transposed",
                                    "nvfp4_in_place_rht",
                                    "nvfp4_search",
                                    "mxfp4",
                                    "fp8",
                                    "fp8_in_place",
                                    "fp8_2d",
                                    "fp8_2d_transposed",
                                    "fp8_tensor"};
  return kNames[static_cast<int>(form)];
}

QuantSpec spec_of(Form form) {
  switch (form) {
    case Form::nvfp4_2d_transposed:
      return {.block = {16, 16}};
    case Form::nvfp4_in_place_rht:
      return {.axis = 0, .hadamard = 16};
    case Form::nvfp4_search:
      return {.scaling = Scaling::search};
    case Form::mxfp4:
      return {.format = Format::mxfp4, .block = {1, 32}};
    case Form::fp8:
      return {.format = Format::fp8, .block = {1, 128}};
    case Form::fp8_in_place:
      return {.format = Format::fp8, .block = {1, 128}, .axis = 0};
    case Form::fp8_2d:
    case Form::fp8_2d_transposed:
      return {.format = Format::fp8, .block = {128, 128}};
    case Form::fp8_tensor:
      return {.format = Format::fp8, .block = BlockShape::whole()};
    default:
      return {};
  }
}

/// The engine's own decoder gives the values: it has been held to the oracle elsewhere.
std::vector<double> decoded_values(Backend& device, const QuantizedTensor& tensor, bool transposed) {
  std::vector<float> decoded(static_cast<std::size_t>(tensor.rows * tensor.cols));
  device.dequantize(tensor, mutable_view_of(decoded.data(), tensor.rows, tensor.cols));
  std::vector<double> values(decoded.size());
  for (std::int64_t r = 0; r < tensor.rows; ++r)
    for (std::int64_t c = 0; c < tensor.cols; ++c)
      values[static_cast<std::size_t>(transposed ? c * tensor.rows + r : r * tensor.cols + c)] =
          decoded[static_cast<std::size_t>(r * tensor.cols + c)];
  return values;
}

void make_operand(Backend& device, Form form, std::int64_t rows, std::int64_t k, TestOperand& out) {
  const bool in_place = form == Form::nvfp4_in_place_rht || form == Form::fp8_in_place;
  const bool transposed_2d = form == Form::nvfp4_2d_transposed || form == Form::fp8_2d_transposed;
  const bool lies_transposed =
      form == Form::f32_transposed || form == Form::bf16_transposed || in_place || transposed_2d;
  const std::int64_t stored_rows = lies_transposed ? k : rows;
  const std::int64_t stored_cols = lies_transposed ? rows : k;
  out.dense = oracle::rounded_to_bf16(oracle::make_input("gaussian", stored_rows, stored_cols));
  out.view = view_of(out.dense.data(), stored_rows, stored_cols);
  if (form == Form::bf16 || form == Form::bf16_transposed) {
    for (const float x : out.dense) out.dense_bf16.push_back(Bf16::from_f32(x));
    out.view = view_of(out.dense_bf16.data(), stored_rows, stored_cols);
  }
  if (form <= Form::bf16_transposed) {
    out.used_transposed = lies_transposed;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < k; ++c)
        out.values.push_back(out.dense[static_cast<std::size_t>(lies_transposed ? c * rows + r : r * k + c)]);
    return;
  }
  out.is_quantized = true;
  out.used_transposed = transposed_2d;
  const CodeOrder order = in_place ? CodeOrder::col_major : CodeOrder::row_major;
  device.quantize(view_of(out.dense.data(), stored_rows, stored_cols), spec_of(form), {.order = order},
                  out.quantized);
  out.values = decoded_values(device, out.quantized, out.used_transposed);
}

struct Reference {
  std::vector<double> product;
  std::vector<double> bound;  //!< error bound of f32 accumulation: (k + 8) roundings of the sum of magnitudes
};

Reference reference(const TestOperand& a, const TestOperand& b, const Shape& shape) {
  const auto size = static_cast<std::size_t>(shape.m * shape.n);
  Reference result{std::vector<double>(size), std::vector<double>(size)};
  for (std::int64_t i = 0; i < shape.m; ++i)
    for (std::int64_t j = 0; j < shape.n; ++j) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < shape.k; ++k) {
        const double product = a.values[static_cast<std::size_t>(i * shape.k + k)] *
                               b.values[static_cast<std::size_t>(j * shape.k + k)];
        sum += product;
        magnitude += std::abs(product);
      }
      const auto at = static_cast<std::size_t>(i * shape.n + j);
      result.product[at] = sum;
      result.bound[at] = 0x1p-24 * static_cast<double>(shape.k + 8) * magnitude;
    }
  return result;
}

class Gemm : public ::testing::TestWithParam<std::tuple<std::string, Form, Form>> {
 protected:
  Backend& device() { return backend(std::get<0>(GetParam()), 0); }
};

TEST_P(Gemm, EqualsDoublePrecisionOverTheDecodedOperands) {
  for (const Shape& shape : {Shape{16, 16, 128}, Shape{48, 80, 256}, Shape{272, 304, 128},
                             Shape{160, 16, 400}, Shape{48, 112, 1040}}) {
    TestOperand a;
    TestOperand b;
    make_operand(device(), std::get<1>(GetParam()), shape.m, shape.k, a);
    make_operand(device(), std::get<2>(GetParam()), shape.n, shape.k, b);
    const Reference expected = reference(a, b, shape);

    std::vector<float> f32(expected.product.size(), std::numeric_limits<float>::quiet_NaN());
    const auto view = mutable_view_of(f32.data(), shape.m, shape.n);
    device().gemm(a.operand(), b.operand(), view);
    std::vector<Bf16> bf16(f32.size());
    device().gemm(a.operand(), b.operand(), mutable_view_of(bf16.data(), shape.m, shape.n));
    for (std::size_t i = 0; i < f32.size(); ++i) {
      ASSERT_NEAR(f32[i], expected.product[i], expected.bound[i]) << "element " << i;
      ASSERT_EQ(bf16[i].bits, Bf16::from_f32(f32[i]).bits) << "BF16 output is the f32 result, rounded once";
    }

    device().gemm(a.operand(), b.operand(), view, Accumulate::yes);
    for (std::size_t i = 0; i < f32.size(); ++i)
      ASSERT_NEAR(f32[i], 2 * expected.product[i], 3 * expected.bound[i]) << "accumulated element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Gemm,
    ::testing::Combine(::testing::ValuesIn(backend_names()),
                       ::testing::Values(Form::f32, Form::f32_transposed, Form::bf16, Form::bf16_transposed,
                                         Form::nvfp4, Form::nvfp4_in_place_rht, Form::mxfp4,
                                         Form::fp8_tensor),
                       ::testing::Values(Form::f32, Form::bf16, Form::nvfp4, Form::nvfp4_2d_transposed,
                                         Form::nvfp4_in_place_rht, Form::nvfp4_search, Form::fp8)),
    [](const auto& test) {
      return std::get<0>(test.param) + "_" + name_of(std::get<1>(test.param)) + "_by_" +
             name_of(std::get<2>(test.param));
    });

// ---------------------------------------------------------------------------------------------------------------------

/// Pairs of FP8 operands in blocks along K: what matrix units may take as it is.
class Fp8Gemm : public Gemm {};

TEST_P(Fp8Gemm, EqualsDoublePrecisionOverTheDecodedOperands) {
  const bool exact = std::get<0>(GetParam()) == "cpu";
  // Whole blocks along K, less than one, and several with a part of one in the end; the last is the input
  // projection of nemotron-h-1b.
  for (const Shape& shape :
       {Shape{64, 96, 256}, Shape{144, 272, 384}, Shape{16, 16, 16}, Shape{48, 80, 64}, Shape{80, 48, 192},
        Shape{272, 144, 336}, Shape{16, 32, 656}, Shape{32, 16, 10304}}) {
    SCOPED_TRACE(shape.k);
    TestOperand a;
    TestOperand b;
    make_operand(device(), std::get<1>(GetParam()), shape.m, shape.k, a);
    make_operand(device(), std::get<2>(GetParam()), shape.n, shape.k, b);
    const Reference expected = reference(a, b, shape);
    double largest = 0;
    for (const double value : expected.product) largest = std::max(largest, std::abs(value));
    const auto bound = [&](std::size_t i) { return exact ? expected.bound[i] : kNarrowSum * largest; };

    std::vector<float> f32(expected.product.size(), std::numeric_limits<float>::quiet_NaN());
    const auto view = mutable_view_of(f32.data(), shape.m, shape.n);
    device().gemm(a.operand(), b.operand(), view);
    for (std::size_t i = 0; i < f32.size(); ++i)
      ASSERT_NEAR(f32[i], expected.product[i], bound(i)) << "element " << i;
    device().gemm(a.operand(), b.operand(), view, Accumulate::yes);
    for (std::size_t i = 0; i < f32.size(); ++i)
      ASSERT_NEAR(f32[i], 2 * expected.product[i], 3 * bound(i)) << "accumulated element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Gemm,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::Values(Form::fp8, Form::fp8_in_place, Form::fp8_2d),
                                            ::testing::Values(Form::fp8, Form::fp8_in_place, Form::fp8_2d,
                                                              Form::fp8_2d_transposed)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + name_of(std::get<1>(test.param)) + "_by_" +
                                  name_of(std::get<2>(test.param));
                         });

// ---------------------------------------------------------------------------------------------------------------------

class GemmProperties : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam(), 0); }
};

TEST_P(GemmProperties, IsTheSameFromOneThreadAndFromMany) {
  constexpr Shape kShape{2100, 600, 96};  // several panels and tiles, ragged ends
  TestOperand a;
  TestOperand b;
  make_operand(device(), Form::nvfp4, kShape.m, kShape.k, a);
  make_operand(device(), Form::bf16, kShape.n, kShape.k, b);
  std::vector<float> one(static_cast<std::size_t>(kShape.m * kShape.n));
  std::vector<float> many(one.size());
  backend(GetParam(), 1).gemm(a.operand(), b.operand(), mutable_view_of(one.data(), kShape.m, kShape.n));
  for (const int threads : {2, 5}) {
    backend(GetParam(), threads)
        .gemm(a.operand(), b.operand(), mutable_view_of(many.data(), kShape.m, kShape.n));
    EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0) << threads << " threads";
  }
}

TEST_P(GemmProperties, WritesNothingOutsideAStridedOutput) {
  constexpr Shape kShape{40, 24, 64};
  constexpr std::int64_t kStride = 40;
  TestOperand a;
  TestOperand b;
  make_operand(device(), Form::nvfp4, kShape.m, kShape.k, a);
  make_operand(device(), Form::nvfp4, kShape.n, kShape.k, b);
  std::vector<float> out(static_cast<std::size_t>(kShape.m * kStride), -7.0f);
  device().gemm(a.operand(), b.operand(),
                MutableMatrixView{out.data(), DType::f32, kShape.m, kShape.n, kStride, 1});
  for (std::int64_t r = 0; r < kShape.m; ++r)
    for (std::int64_t c = kShape.n; c < kStride; ++c)
      ASSERT_EQ(out[static_cast<std::size_t>(r * kStride + c)], -7.0f);
}

TEST_P(GemmProperties, HadamardTransformsOfBothOperandsCancel) {
  constexpr Shape kShape{32, 32, 512};
  const std::vector<float> x = oracle::rounded_to_bf16(oracle::make_input("gaussian", kShape.m, kShape.k));
  std::vector<float> plain(static_cast<std::size_t>(kShape.m * kShape.n));
  std::vector<float> transformed(plain.size());
  for (const int size : {0, 16}) {
    QuantizedTensor a;  // FP8 keeps the quantization error small enough to see the transforms cancel
    device().quantize(view_of(x.data(), kShape.m, kShape.k),
                      {.format = Format::fp8, .block = {1, 128}, .hadamard = size}, {}, a);
    device().gemm(a, a, mutable_view_of((size == 0 ? plain : transformed).data(), kShape.m, kShape.n));
  }
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    difference += std::pow(plain[i] - transformed[i], 2);
    norm += std::pow(plain[i], 2);
  }
  EXPECT_LT(std::sqrt(difference / norm),
            0.02);  // 2^-4 relative error per element, averaged over 512 products
}

TEST_P(GemmProperties, MeanOverStochasticDrawsApproachesTheExactProduct) {
  constexpr Shape kShape{16, 16, 64};
  constexpr int kDraws = 400;
  const std::vector<float> x = oracle::make_input("gaussian", kShape.m, kShape.k);
  TestOperand b;
  make_operand(device(), Form::bf16, kShape.n, kShape.k, b);
  TestOperand exact;
  exact.values.assign(x.begin(), x.end());
  const Reference expected = reference(exact, b, kShape);

  const auto mean_error = [&](Rounding rounding) {
    std::vector<double> mean(expected.product.size());
    std::vector<float> out(mean.size());
    for (std::uint32_t draw = 0; draw < kDraws; ++draw) {
      QuantizedTensor a;
      device().quantize(view_of(x.data(), kShape.m, kShape.k), {.rounding = rounding},
                        {.random = {.step = draw}}, a);
      device().gemm(a, b.operand(), mutable_view_of(out.data(), kShape.m, kShape.n));
      for (std::size_t i = 0; i < out.size(); ++i) mean[i] += out[i] / double{kDraws};
    }
    double error = 0;
    for (std::size_t i = 0; i < mean.size(); ++i) error += std::pow(mean[i] - expected.product[i], 2);
    return std::sqrt(error / static_cast<double>(mean.size()));
  };
  // Averaging removes random errors and keeps systematic ones; what remains is clipping and the draws' own
  // noise.
  EXPECT_LT(mean_error(Rounding::stochastic), 0.35 * mean_error(Rounding::nearest));
}

TEST_P(GemmProperties, NonFiniteInputReachesTheResult) {
  std::vector<float> x = oracle::make_input("gaussian", 32, 64);
  x[100] = std::numeric_limits<float>::infinity();
  for (const QuantSpec& spec : {QuantSpec{}, QuantSpec{.format = Format::mxfp4, .block = {1, 32}},
                                QuantSpec{.format = Format::fp8, .block = BlockShape::whole()}}) {
    QuantizedTensor a;
    device().quantize(view_of(x.data(), 32, 64), spec, {}, a);
    std::vector<float> out(32 * 32);
    device().gemm(a, a, mutable_view_of(out.data(), 32, 32));
    for (const float value : out) ASSERT_TRUE(std::isnan(value));
  }
}

TEST_P(GemmProperties, TakesMatricesOfOneColumnEitherWayRound) {
  // Both strides of such a view are 1, so it does not show which way it lies.
  const std::vector<float> x = {1, 2, 3, 4, 5};
  const GemmOperand column = view_of(x.data(), 5, 1);
  std::vector<float> dot(1);
  device().gemm(column.transposed(), column.transposed(), mutable_view_of(dot.data(), 1, 1));
  EXPECT_EQ(dot[0], 55.0f);
  std::vector<float> outer(25);
  device().gemm(column, column, mutable_view_of(outer.data(), 5, 5));
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t j = 0; j < 5; ++j) EXPECT_EQ(outer[5 * i + j], x[i] * x[j]);
}

TEST_P(GemmProperties, RefusesShapesThatDoNotFit) {
  const std::vector<float> x(64);
  std::vector<float> out(64);
  const auto a = view_of(x.data(), 4, 16);
  EXPECT_THROW(device().gemm(a, view_of(x.data(), 8, 8), mutable_view_of(out.data(), 4, 8)), Error);
  EXPECT_THROW(device().gemm(a, a, mutable_view_of(out.data(), 4, 5)), Error);
  std::vector<Bf16> bf16(16);
  EXPECT_THROW(device().gemm(a, a, mutable_view_of(bf16.data(), 4, 4), Accumulate::yes), Error);
}

INSTANTIATE_TEST_SUITE_P(All, GemmProperties, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::gemm_test
