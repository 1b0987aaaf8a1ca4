// SPDX-License-Identifier: Apache-2.0
// RMSNorm and the gated norm against double precision, forward and backward.

#include <fmt/format.h>

#include "oracle/decoder_ops.h"
#include "support/gradient.h"
#include "support/matrices.h"
#include "tetrad/core/error.h"

namespace tetrad::testing::norm_test {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr double kForward = 1e-6;  // a few roundings, and a sum of squares whose errors average out
constexpr double kBackward =
    2e-5;  // sums of f32 products; the finite differences themselves are good to 1e-9

struct Shape {
  std::int64_t rows, width;
  std::int64_t groups = 1;
};

class RmsNorm : public OpTest {};

TEST_P(RmsNorm, ForwardEqualsTheFormula) {
  for (const auto& [rows, width, heads] :
       {Shape{1, 1}, Shape{3, 7}, Shape{5, 33}, Shape{70, 256}, Shape{1, 4, 4}, Shape{3, 14, 2},
        Shape{5, 99, 3}, Shape{70, 256, 8}}) {
    SCOPED_TRACE(fmt::format("{} x {}, heads {}", rows, width, heads));
    const std::int64_t head = width / heads;  // the oracle sees rows of this width
    const TestMatrix x(storage(), rows, width, random_values(rows * width, 1, 3));
    const std::vector<double> weight = random_values(head, 2);
    const std::vector<float> weight_f32 = to_f32(weight);
    TestMatrix y(storage(), rows, width);
    std::vector<float> inverse(static_cast<std::size_t>(rows * heads));
    device().rms_norm(
        RmsNormForward{x.view(), weight_f32.data(), kEpsilon, y.mutable_view(), inverse.data(), heads});
    EXPECT_TRUE(close(y.values(), oracle::rms_norm(x.values(), weight, double{kEpsilon}), dtype(), kForward));
    EXPECT_TRUE(y.guards_untouched());
    const std::vector<double> in = x.values();
    std::vector<double> expected_inverse;
    for (std::int64_t r = 0; r < rows * heads; ++r) {
      double squares = 0;
      for (std::int64_t c = 0; c < head; ++c)
        squares += std::pow(in[static_cast<std::size_t>(r * head + c)], 2);
      expected_inverse.push_back(1 / std::sqrt(squares / static_cast<double>(head) + double{kEpsilon}));
    }
    EXPECT_TRUE(close(inverse, expected_inverse, kForward));
  }
}

TEST_P(RmsNorm, MayWriteOverWhatItReads) {
  constexpr Shape kShape{19, 48, 3};
  const auto& [rows, width, heads] = kShape;
  const std::vector<float> weight = to_f32(random_values(width / heads, 2));
  const TestMatrix x(storage(), rows, width, random_values(rows * width, 1, 3));
  const TestMatrix dy(storage(), rows, width, random_values(rows * width, 3));
  TestMatrix y(storage(), rows, width);
  TestMatrix y_in_place(storage(), rows, width, x.values());
  TestMatrix dx(storage(), rows, width, random_values(rows * width, 4));
  TestMatrix dx_in_place(storage(), rows, width, dy.values());
  std::vector<float> inverse(static_cast<std::size_t>(rows * heads));
  std::vector<float> dweight(weight.size());
  std::vector<float> dweight_in_place(weight.size());
  device().rms_norm(RmsNormForward{y_in_place.view(), weight.data(), kEpsilon, y_in_place.mutable_view(),
                                   inverse.data(), heads});
  device().rms_norm(
      RmsNormForward{x.view(), weight.data(), kEpsilon, y.mutable_view(), inverse.data(), heads});
  EXPECT_TRUE(y_in_place.same_bytes(y));
  device().rms_norm(RmsNormBackward{x.view(), weight.data(), inverse.data(), dy.view(), dx.mutable_view(),
                                    dweight.data(), heads, Accumulate::no});
  device().rms_norm(RmsNormBackward{x.view(), weight.data(), inverse.data(), dx_in_place.view(),
                                    dx_in_place.mutable_view(), dweight_in_place.data(), heads,
                                    Accumulate::no});
  EXPECT_TRUE(dx_in_place.same_bytes(dx));
  EXPECT_EQ(dweight_in_place, dweight);
}

TEST_P(RmsNorm, EpsilonDecidesForRowsOfZerosAndTinyValues) {
  const TestMatrix x(storage(), 2, 4, {0, 0, 0, 0, 1e-4, -1e-4, 1e-4, 0});
  const std::vector<float> weight(4, 2.0f);
  TestMatrix y(storage(), 2, 4);
  std::vector<float> inverse(2);
  device().rms_norm(RmsNormForward{x.view(), weight.data(), 1e-2f, y.mutable_view(), inverse.data()});
  EXPECT_TRUE(
      close(y.values(), oracle::rms_norm(x.values(), {2, 2, 2, 2}, double{1e-2f}), dtype(), kForward));
  EXPECT_NEAR(inverse[0], 10.0f, 1e-5f);
}

struct NormGradients {
  TestMatrix dx;
  std::vector<float> dweight;
  bool operator==(const NormGradients& other) const {
    return dx.same_bytes(other.dx) && dweight == other.dweight;
  }
};

NormGradients rms_norm_gradients(Backend& device, const TestMatrix& x, const std::vector<float>& weight,
                                 const TestMatrix& dy, NormGradients start, std::int64_t heads = 1,
                                 Accumulate accumulate = Accumulate::yes) {
  const auto rows = x.view().rows;
  TestMatrix y({DType(x.view().dtype), false}, rows, x.view().cols);
  std::vector<float> inverse(static_cast<std::size_t>(rows * heads));
  device.rms_norm(RmsNormForward{x.view(), weight.data(), kEpsilon, y.mutable_view(), inverse.data(), heads});
  device.rms_norm(RmsNormBackward{x.view(), weight.data(), inverse.data(), dy.view(), start.dx.mutable_view(),
                                  start.dweight.data(), heads, accumulate});
  return start;
}

TEST_P(RmsNorm, BackwardAddsOrWritesTheGradientsOfTheFormula) {
  for (const auto& [rows, width, heads] :
       {Shape{1, 1}, Shape{3, 7}, Shape{70, 19}, Shape{3, 14, 2}, Shape{70, 18, 3}}) {
    SCOPED_TRACE(fmt::format("{} x {}, heads {}", rows, width, heads));
    const TestMatrix x(storage(), rows, width, random_values(rows * width, 1, 2));
    const TestMatrix dy(storage(), rows, width, random_values(rows * width, 2));
    const std::vector<double> weight = random_values(width / heads, 3);
    const NormGradients start{{storage(), rows, width, random_values(rows * width, 4)},
                              to_f32(random_values(width / heads, 5))};
    const NormGradients got = rms_norm_gradients(device(), x, to_f32(weight), dy, start, heads);
    const NormGradients written =
        rms_norm_gradients(device(), x, to_f32(weight), dy, start, heads, Accumulate::no);

    const auto dx = numeric_gradient(
        [&](const std::vector<double>& v) {
          return dot(oracle::rms_norm(v, weight, double{kEpsilon}), dy.values());
        },
        x.values());
    const auto dweight = numeric_gradient(
        [&](const std::vector<double>& v) {
          return dot(oracle::rms_norm(x.values(), v, double{kEpsilon}), dy.values());
        },
        weight);
    EXPECT_TRUE(close(got.dx.values(), sum_of(start.dx.values(), dx), dtype(), kBackward));
    if (width > heads) {  // of the gradient of a single value, rounding is what is left
      EXPECT_TRUE(close(written.dx.values(), dx, dtype(), kBackward));
    }
    EXPECT_TRUE(close(got.dweight, sum_of(to_f64(start.dweight), dweight), kBackward));
    EXPECT_EQ(written.dweight, got.dweight);
    EXPECT_TRUE(got.dx.guards_untouched() && written.dx.guards_untouched());
  }
}

TEST_P(RmsNorm, DoesNotDependOnThreads) {
  constexpr std::int64_t kRows = 333;
  constexpr std::int64_t kWidth = 130;
  const TestMatrix x(storage(), kRows, kWidth, random_values(kRows * kWidth, 1));
  const TestMatrix dy(storage(), kRows, kWidth, random_values(kRows * kWidth, 2));
  const std::vector<float> weight = to_f32(random_values(kWidth, 3));
  const NormGradients start{{storage(), kRows, kWidth, random_values(kRows * kWidth, 4)},
                            std::vector<float>(kWidth)};
  expect_same_for_any_threads(backend_name(),
                              [&](Backend& on) { return rms_norm_gradients(on, x, weight, dy, start); });
  constexpr std::int64_t kHeads = 5;
  const NormGradients of_heads{start.dx, std::vector<float>(kWidth / kHeads)};
  expect_same_for_any_threads(backend_name(), [&](Backend& on) {
    return rms_norm_gradients(on, x, weight, dy, of_heads, kHeads, Accumulate::no);
  });
}

TEST_P(RmsNorm, RefusesShapesThatDoNotFit) {
  const TestMatrix x(storage(), 2, 4, random_values(8, 1));
  TestMatrix y(storage(), 2, 3);
  const std::vector<float> weight(4, 1.0f);
  std::vector<float> inverse(2);
  EXPECT_THROW(
      device().rms_norm(RmsNormForward{x.view(), weight.data(), kEpsilon, y.mutable_view(), inverse.data()}),
      Error);
  TestMatrix like_x(storage(), 2, 4);
  for (const std::int64_t heads : {3, 0})
    EXPECT_THROW(device().rms_norm(RmsNormForward{x.view(), weight.data(), kEpsilon, like_x.mutable_view(),
                                                  inverse.data(), heads}),
                 Error);
}

TETRAD_INSTANTIATE_OP_TEST(RmsNorm);

// ---------------------------------------------------------------------------------------------------------------------

class GatedNorm : public OpTest {};

constexpr Shape kGatedShapes[] = {{1, 1, 1}, {3, 6, 2}, {5, 21, 3}, {70, 24, 1}};

TEST_P(GatedNorm, ForwardEqualsTheFormula) {
  for (const auto& [rows, width, groups] : kGatedShapes) {
    const TestMatrix y(storage(), rows, width, random_values(rows * width, 1, 2));
    const TestMatrix z(storage(), rows, width, random_values(rows * width, 2, 4));
    const std::vector<double> weight = random_values(width, 3);
    const std::vector<float> weight_f32 = to_f32(weight);
    TestMatrix out(storage(), rows, width);
    std::vector<float> inverse(static_cast<std::size_t>(rows * groups));
    device().gated_norm(GatedNormForward{y.view(), z.view(), weight_f32.data(), groups, kEpsilon,
                                         out.mutable_view(), inverse.data()});
    EXPECT_TRUE(close(out.values(),
                      oracle::gated_norm(y.values(), z.values(), weight, groups, double{kEpsilon}), dtype(),
                      2 * kForward))
        << rows << " x " << width;
    EXPECT_TRUE(out.guards_untouched());
  }
}

struct GatedGradients {
  TestMatrix dy, dz;
  std::vector<float> dweight;
  bool operator==(const GatedGradients& other) const {
    return dy.same_bytes(other.dy) && dz.same_bytes(other.dz) && dweight == other.dweight;
  }
};

GatedGradients gated_gradients(Backend& device, Storage storage, const Shape& shape, const TestMatrix& y,
                               const TestMatrix& z, const std::vector<float>& weight, const TestMatrix& dout,
                               const std::vector<float>& dweight) {
  GatedGradients result{{storage, shape.rows, shape.width}, {storage, shape.rows, shape.width}, dweight};
  TestMatrix out({storage.dtype, false}, shape.rows, shape.width);
  std::vector<float> inverse(static_cast<std::size_t>(shape.rows * shape.groups));
  device.gated_norm(GatedNormForward{y.view(), z.view(), weight.data(), shape.groups, kEpsilon,
                                     out.mutable_view(), inverse.data()});
  device.gated_norm(GatedNormBackward{y.view(), z.view(), weight.data(), shape.groups, inverse.data(),
                                      dout.view(), result.dy.mutable_view(), result.dz.mutable_view(),
                                      result.dweight.data()});
  return result;
}

TEST_P(GatedNorm, BackwardWritesTheGradientsOfTheFormula) {
  for (const Shape& shape : kGatedShapes) {
    const auto& [rows, width, groups] = shape;
    const TestMatrix y(storage(), rows, width, random_values(rows * width, 1, 2));
    const TestMatrix z(storage(), rows, width, random_values(rows * width, 2, 2));
    const TestMatrix dout(storage(), rows, width, random_values(rows * width, 3));
    const std::vector<double> weight = random_values(width, 4);
    const std::vector<float> start = to_f32(random_values(width, 5));
    const GatedGradients got = gated_gradients(device(), storage(), shape, y, z, to_f32(weight), dout, start);

    const auto f = [&](const auto& ys, const auto& zs, const auto& w) {
      return dot(oracle::gated_norm(ys, zs, w, shape.groups, double{kEpsilon}), dout.values());
    };
    const auto dy = numeric_gradient([&](const auto& v) { return f(v, z.values(), weight); }, y.values());
    const auto dz = numeric_gradient([&](const auto& v) { return f(y.values(), v, weight); }, z.values());
    const auto dweight =
        numeric_gradient([&](const auto& v) { return f(y.values(), z.values(), v); }, weight);
    EXPECT_TRUE(close(got.dy.values(), dy, dtype(), kBackward)) << rows << " x " << width;
    EXPECT_TRUE(close(got.dz.values(), dz, dtype(), kBackward)) << rows << " x " << width;
    EXPECT_TRUE(close(got.dweight, sum_of(to_f64(start), dweight), kBackward));
    EXPECT_TRUE(got.dy.guards_untouched() && got.dz.guards_untouched());
  }
}

TEST_P(GatedNorm, DoesNotDependOnThreads) {
  constexpr Shape kShape{200, 96, 4};
  constexpr std::int64_t kSize = kShape.rows * kShape.width;
  const TestMatrix y(storage(), kShape.rows, kShape.width, random_values(kSize, 1));
  const TestMatrix z(storage(), kShape.rows, kShape.width, random_values(kSize, 2));
  const TestMatrix dout(storage(), kShape.rows, kShape.width, random_values(kSize, 3));
  const std::vector<float> weight = to_f32(random_values(kShape.width, 4));
  expect_same_for_any_threads(backend_name(), [&](Backend& on) {
    return gated_gradients(on, storage(), kShape, y, z, weight, dout, std::vector<float>(weight.size()));
  });
}

TEST_P(GatedNorm, RefusesGroupsThatDoNotDivideTheWidth) {
  const TestMatrix y(storage(), 2, 4, random_values(8, 1));
  TestMatrix out(storage(), 2, 4);
  const std::vector<float> weight(4, 1.0f);
  std::vector<float> inverse(6);
  for (const std::int64_t groups : {3, 0})
    EXPECT_THROW(device().gated_norm(GatedNormForward{y.view(), y.view(), weight.data(), groups, kEpsilon,
                                                      out.mutable_view(), inverse.data()}),
                 Error);
}

TETRAD_INSTANTIATE_OP_TEST(GatedNorm);

}  // namespace
}  // namespace tetrad::testing::norm_test
