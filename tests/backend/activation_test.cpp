// SPDX-License-Identifier: Apache-2.0
// SwiGLU and squared ReLU against double precision, forward and backward.

#include "oracle/decoder_ops.h"
#include "support/gradient.h"
#include "support/matrices.h"
#include "tetrad/core/error.h"

namespace tetrad::testing::activation_test {
namespace {

struct Shape {
  std::int64_t rows, width;
};
constexpr Shape kShapes[] = {{1, 1}, {3, 7}, {5, 33}, {40, 17}};

std::int64_t input_width(Activation kind, std::int64_t width) {
  return kind == Activation::swiglu ? 2 * width : width;
}

std::vector<double> reference(Activation kind, const std::vector<double>& x, std::int64_t width) {
  return kind == Activation::swiglu ? oracle::swiglu(x, width) : oracle::squared_relu(x);
}

class ActivationOp : public OpTest {};

TEST_P(ActivationOp, ForwardEqualsTheFormula) {
  for (const Activation kind : {Activation::swiglu, Activation::squared_relu})
    for (const auto& [rows, width] : kShapes) {
      const std::int64_t in = input_width(kind, width);
      const TestMatrix x(storage(), rows, in, random_values(rows * in, 1, 3));
      TestMatrix y(storage(), rows, width);
      device().activation(ActivationForward{kind, x.view(), y.mutable_view()});
      EXPECT_TRUE(close(y.values(), reference(kind, x.values(), width), dtype(), 5e-7))
          << rows << " x " << width;
      EXPECT_TRUE(y.guards_untouched());
    }
}

TEST_P(ActivationOp, BackwardWritesTheGradientOfTheFormula) {
  for (const Activation kind : {Activation::swiglu, Activation::squared_relu})
    for (const auto& shape : kShapes) {
      const std::int64_t rows = shape.rows;
      const std::int64_t width = shape.width;
      const std::int64_t in = input_width(kind, width);
      const TestMatrix x(storage(), rows, in, random_values(rows * in, 1, 2));
      const TestMatrix dy(storage(), rows, width, random_values(rows * width, 2));
      TestMatrix dx(storage(), rows, in);
      device().activation(ActivationBackward{kind, x.view(), dy.view(), dx.mutable_view()});
      const auto expected = numeric_gradient(
          [&](const std::vector<double>& v) { return dot(reference(kind, v, width), dy.values()); },
          x.values());
      EXPECT_TRUE(close(dx.values(), expected, dtype(), 2e-6)) << rows << " x " << width;
      EXPECT_TRUE(dx.guards_untouched());
    }
}

TEST_P(ActivationOp, TheGradientMayTakeThePlaceOfTheInput) {
  for (const Activation kind : {Activation::swiglu, Activation::squared_relu})
    for (const auto& [rows, width] : {Shape{3, 7}, Shape{40, 17}, Shape{5, 64}}) {
      const std::int64_t in = input_width(kind, width);
      TestMatrix x(storage(), rows, in, random_values(rows * in, 1, 2));
      const TestMatrix dy(storage(), rows, width, random_values(rows * width, 2));
      TestMatrix dx(storage(), rows, in);
      device().activation(ActivationBackward{kind, x.view(), dy.view(), dx.mutable_view()});
      device().activation(ActivationBackward{kind, x.view(), dy.view(), x.mutable_view()});
      EXPECT_EQ(x.values(), dx.values()) << rows << " x " << width;
      EXPECT_TRUE(x.guards_untouched());
    }
}

TEST_P(ActivationOp, SurvivesExtremeInputs) {
  // Gates far out: silu is x or 0, with no overflow on the way. [gate | up]
  const TestMatrix x(storage(), 1, 8, {-1e4, -200, 200, 1e4, 2, 2, 2, 2});
  TestMatrix y(storage(), 1, 4);
  device().activation(ActivationForward{Activation::swiglu, x.view(), y.mutable_view()});
  const std::vector<double> in = x.values();
  EXPECT_EQ(y.values(), (std::vector<double>{0, 0, 2 * in[2], 2 * in[3]}));
  const TestMatrix dy(storage(), 1, 4, {1, 1, 1, 1});
  TestMatrix dx(storage(), 1, 8);
  device().activation(ActivationBackward{Activation::swiglu, x.view(), dy.view(), dx.mutable_view()});
  EXPECT_EQ(dx.values(), (std::vector<double>{0, 0, 2, 2, 0, 0, in[2], in[3]}));
}

TEST_P(ActivationOp, NaNStaysNaN) {
  const double nan = std::nan("");
  for (const Activation kind : {Activation::swiglu, Activation::squared_relu}) {
    const TestMatrix x(storage(), 1, input_width(kind, 1), {nan, 1});
    TestMatrix y(storage(), 1, 1);
    device().activation(ActivationForward{kind, x.view(), y.mutable_view()});
    EXPECT_TRUE(std::isnan(y.values()[0]))
        << "a NaN must not turn into a number: activation " << static_cast<int>(kind);
  }
}

TEST_P(ActivationOp, DoesNotDependOnThreads) {
  const TestMatrix x(storage(), 300, 254, random_values(300 * 254, 1));
  const TestMatrix dy(storage(), 300, 127, random_values(300 * 127, 2));
  expect_same_for_any_threads(backend_name(), [&](Backend& on) {
    TestMatrix y(storage(), 300, 127);
    TestMatrix dx(storage(), 300, 254);
    on.activation(ActivationForward{Activation::swiglu, x.view(), y.mutable_view()});
    on.activation(ActivationBackward{Activation::swiglu, x.view(), dy.view(), dx.mutable_view()});
    return std::pair(y.values(), dx.values());
  });
}

TEST_P(ActivationOp, RefusesShapesThatDoNotFit) {
  const TestMatrix x(storage(), 2, 4, random_values(8, 1));
  TestMatrix y(storage(), 2, 4);
  EXPECT_THROW(device().activation(ActivationForward{Activation::swiglu, x.view(), y.mutable_view()}), Error);
}

TETRAD_INSTANTIATE_OP_TEST(ActivationOp);

}  // namespace
}  // namespace tetrad::testing::activation_test
