// SPDX-License-Identifier: Apache-2.0
// A linear layer in every recipe against the same computation spelled out: quantize each operand with the
// recipe's spec, decode it, multiply in double precision.

#include "tetrad/model/linear.h"

#include <algorithm>
#include <numeric>

#include "support/gradient.h"
#include "support/linear_oracle.h"
#include "support/matrices.h"

namespace tetrad::testing::linear_test {
namespace {

constexpr std::int64_t kBlocks = 20;  // blocks of the imagined model; the layer is in the middle
constexpr std::int64_t kBlock = 10;
constexpr std::uint32_t kId = 6;
constexpr std::uint64_t kSeed = 0x1234567890ull;

struct Shape {
  std::int64_t tokens, in, out;
};
constexpr Shape kShape{64, 48, 80};

Parameter make_parameter(std::int64_t rows, std::int64_t cols, const Values& values) {
  Parameter parameter;
  parameter.name = "blocks.10.up.weight";
  parameter.shape = {rows, cols};
  const auto bytes = values.size() * sizeof(float);
  parameter.value = Tensor(Buffer(bytes), DType::f32, rows, cols);
  parameter.gradient = Tensor(Buffer(bytes), DType::f32, rows, cols);
  std::copy(values.begin(), values.end(), parameter.value.f32());
  std::fill_n(parameter.gradient.f32(), values.size(), 0.0f);
  return parameter;
}

/// A layer with its surroundings.
struct Layer {
  Layer(Backend& device, DType dtype, const Shape& shape, const Values& weights)
      : storage(dtype),
        scratch(device),
        weight(make_parameter(shape.out, shape.in, weights)),
        linear(device, scratch, weight, "blocks.10.up", kBlock, kId, dtype) {}

  DType storage;
  Scratch scratch;
  Parameter weight;
  Linear linear;

  Values values_of(const OperandValues& values, Operand operand) const {
    return values.of_weight(operand, weight.value.const_view(), storage);
  }
  Values gradient() const {
    const float* data = weight.gradient.f32();
    return {data, data + weight.gradient.size()};
  }
};

Pass make_pass(const Recipe& recipe) {
  Pass pass;
  pass.recipe = &recipe;
  pass.seed = kSeed;
  pass.step = 3;
  pass.microbatch = 2;
  pass.training = true;
  return pass;
}

OperandValues operand_values(Backend& device, const LinearPrecision& precision, const Pass& pass) {
  return {device, precision, {pass.seed, pass.step, pass.microbatch, kId}};
}

struct RecipeCase {
  std::string name;
  PrecisionConfig config;
  DType storage = DType::bf16;
};

// NOLINTNEXTLINE(readability-identifier-naming): the name is GoogleTest's
void PrintTo(const RecipeCase& recipe, std::ostream* out) { *out << recipe.name; }

std::vector<RecipeCase> recipe_cases() {
  const auto make = [](std::string name, std::string recipe, const auto& change,
                       DType storage = DType::bf16) {
    RecipeCase result{std::move(name), {}, storage};
    result.config.recipe = std::move(recipe);
    change(result.config);
    return result;
  };
  using C = PrecisionConfig&;
  const auto plain = [](C) {};
  const auto all_transformed = [](C c) { c.rht.gemms = {"fprop", "dgrad", "wgrad"}; };
  const auto unquantized = [](std::initializer_list<const char*> operands) {
    return [names = std::vector<std::string>(operands.begin(), operands.end())](C c) {
      for (const std::string& name : names) c.operands[name].format = "bf16";
    };
  };
  return {
      make("bf16", "bf16", plain),
      make("f32", "bf16", plain, DType::f32),
      make("fp8", "fp8", plain),
      make("mxfp4", "mxfp4", plain),
      make("nvfp4", "nvfp4", plain),
      make("nvfp4_in_f32", "nvfp4", plain, DType::f32),
      make("nvfp4_4_6", "nvfp4", [](C c) { c.scale.forward = c.scale.backward = "4/6"; }),
      make("tetrad", "tetrad", [](C) {}),
      make("mxfp4_2d", "mxfp4", [](C c) { c.weights_2d = true; }),
      make("nvfp4_weights_1d", "nvfp4", [](C c) { c.weights_2d = false; }),
      make("nvfp4_rht_everywhere", "nvfp4", all_transformed),
      make("nvfp4_rht_nowhere", "nvfp4", [](C c) { c.rht.gemms = std::vector<std::string>{}; }),
      make("nvfp4_unsigned", "nvfp4", [](C c) { c.rht.signs = "none"; }),
      make("nvfp4_signs_per_step", "nvfp4",
           [&](C c) {
             all_transformed(c);
             c.rht.signs = "per-step";
           }),
      make("nvfp4_sr_everywhere", "nvfp4",
           [](C c) {
             c.sr = {"gradients", "activations", "weights"};
           }),
      make("nvfp4_forward_only", "nvfp4", unquantized({"dgrad.dy", "dgrad.w", "wgrad.dy", "wgrad.x"})),
      make("backward_pass_in_bf16", "tetrad",
           [](C c) { c.schedule = {{.at = 0, .forward = {}, .backward = "bf16"}}; }),
      make("nvfp4_backward_only", "nvfp4", unquantized({"fprop.x", "fprop.w"})),
      make("nvfp4_half_of_wgrad", "nvfp4", unquantized({"wgrad.dy", "dgrad.w"})),
      make("nvfp4_other_half", "nvfp4", unquantized({"wgrad.x", "dgrad.dy"})),
      make("nvfp4_of_fprop", "nvfp4",
           [](C c) {
             c.source = "fprop";
             c.weights_2d = false;
           }),
      make("tetrad_eden", "tetrad",
           [](C c) {
             c.scale.backward = "eden";
             c.rht.size = 16;  // of which these shapes are multiples
           }),
      make("mixed", "nvfp4",
           [](C c) {
             c.operands["fprop.x"].format = "fp8";
             c.operands["dgrad.w"].format = "mxfp4";
             c.operands["wgrad.x"].format = "fp8";
           }),
  };
}

class LinearRecipes : public ::testing::TestWithParam<std::tuple<std::string, RecipeCase>> {
 protected:
  Backend& device() { return backend(std::get<0>(GetParam())); }
  const RecipeCase& recipe_case() { return std::get<1>(GetParam()); }
};

TEST_P(LinearRecipes, EqualsTheProductsOfItsQuantizedOperands) {
  const DType storage = recipe_case().storage;
  const Recipe recipe(recipe_case().config, kBlocks);
  const auto& [tokens, in, out] = kShape;
  Layer layer(device(), storage, kShape, random_values(out * in, 1, 0.1));
  const TestMatrix x({storage}, tokens, in, random_values(tokens * in, 2));
  const TestMatrix dy({storage}, tokens, out, random_values(tokens * out, 3, 1e-3));
  Pass pass = make_pass(recipe);
  TestMatrix y({storage}, tokens, out);
  TestMatrix dx({storage}, tokens, in);
  layer.linear.forward(pass, x.view(), y.mutable_view());
  const MutableMatrixView dx_view = dx.mutable_view();
  layer.linear.backward(pass, dy.view(), &dx_view);

  const OperandValues values = operand_values(device(), recipe.at(layer.linear.layer_id(), 0), pass);
  const auto tolerance = [&](Operand a, Operand b) {
    return may_sum_narrowly(device(), values.precision, a, b)
               ? kNarrowSum
               : 1e-5;  // f32 accumulation of at most 80 products
  };
  EXPECT_TRUE(close(y.values(),
                    product(values.of(Operand::fprop_x, x), layer.values_of(values, Operand::fprop_w), in),
                    storage, tolerance(Operand::fprop_x, Operand::fprop_w)));
  EXPECT_TRUE(close(dx.values(),
                    product(values.of(Operand::dgrad_dy, dy), layer.values_of(values, Operand::dgrad_w), out),
                    storage, tolerance(Operand::dgrad_dy, Operand::dgrad_w)));
  Values dw = product(values.of(Operand::wgrad_dy, dy), values.of(Operand::wgrad_x, x), tokens);
  const double dw_tolerance = tolerance(Operand::wgrad_dy, Operand::wgrad_x);
  EXPECT_TRUE(close(layer.gradient(), dw, DType::f32, dw_tolerance));

  layer.linear.backward(pass, dy.view(), nullptr);
  for (double& value : dw) value *= 2;
  EXPECT_TRUE(close(layer.gradient(), dw, DType::f32, dw_tolerance))
      << "a second microbatch adds to the first";
}

TEST_P(LinearRecipes, GivesTheBitsOfTheStatelessLayer) {
  const DType storage = recipe_case().storage;
  const Recipe recipe(recipe_case().config, kBlocks);
  const auto& [tokens, in, out] = kShape;
  Layer layer(device(), storage, kShape, random_values(out * in, 1, 0.1));
  const TestMatrix x({storage}, tokens, in, random_values(tokens * in, 2));
  const TestMatrix dy({storage}, tokens, out, random_values(tokens * out, 3, 1e-3));
  Pass pass = make_pass(recipe);
  TestMatrix y({storage}, tokens, out);
  TestMatrix dx({storage}, tokens, in);
  const MutableMatrixView dx_view = dx.mutable_view();
  layer.linear.forward(pass, x.view(), y.mutable_view());
  layer.linear.backward(pass, dy.view(), &dx_view);

  const LinearPrecision precision = recipe.at(layer.linear.layer_id(), 0);
  const LinearCall call{device(), precision, {pass.seed, pass.step, pass.microbatch, kId}};
  const MatrixView weight = layer.weight.value.const_view();
  TestMatrix stateless_y({storage}, tokens, out);
  TestMatrix stateless_dx({storage}, tokens, in);
  TestMatrix stateless_dw({DType::f32}, out, in, Values(static_cast<std::size_t>(out * in), 0.0));
  WeightForm fprop_form;
  WeightForm dgrad_form;
  LinearWorkspace workspace;
  QuantizedTensor codes;
  const GemmOperand fprop = linear_weight(call, Operand::fprop_w, weight, storage, fprop_form);
  const LinearSaved saved =
      linear_forward(call, {x.view(), fprop, stateless_y.mutable_view(), workspace, &codes});
  LinearBackward backward{dy.view(), saved, workspace};
  backward.weight = precision.weight_form_shared()
                        ? fprop.transposed()
                        : linear_weight(call, Operand::dgrad_w,
                                        precision.dgrad_requantizes()
                                            ? linear_weight_values(call, fprop_form, storage, workspace)
                                            : weight,
                                        storage, dgrad_form);
  backward.dx = stateless_dx.mutable_view();
  backward.dw = stateless_dw.mutable_view();
  linear_backward(call, backward);
  EXPECT_TRUE(y.same_bytes(stateless_y));
  EXPECT_TRUE(dx.same_bytes(stateless_dx));
  EXPECT_EQ(layer.gradient(), stateless_dw.values());
}

/// Telemetry tells what was quantized.
std::int64_t count_of(const Pass& pass, Operand operand) {
  return std::count_if(pass.stats.begin(), pass.stats.end(),
                       [&](const OperandStats& stats) { return stats.operand == operand; });
}

TEST_P(LinearRecipes, QuantizesWeightsOncePerStep) {
  const DType storage = recipe_case().storage;
  const Recipe recipe(recipe_case().config, kBlocks);
  const LinearPrecision precision = recipe.at({"blocks.10.up", kBlock}, 0);
  Layer layer(device(), storage, kShape, random_values(kShape.out * kShape.in, 1, 0.1));
  const TestMatrix x({storage}, kShape.tokens, kShape.in, random_values(kShape.tokens * kShape.in, 2));
  const TestMatrix dy({storage}, kShape.tokens, kShape.out, random_values(kShape.tokens * kShape.out, 3));
  TestMatrix y({storage}, kShape.tokens, kShape.out);
  TestMatrix dx({storage}, kShape.tokens, kShape.in);
  const MutableMatrixView dx_view = dx.mutable_view();
  Pass pass = make_pass(recipe);
  pass.telemetry = true;
  constexpr std::uint32_t kMicrobatches = 3;
  const auto step = [&] {
    for (pass.microbatch = 0; pass.microbatch < kMicrobatches; ++pass.microbatch) {
      layer.linear.forward(pass, x.view(), y.mutable_view());
      layer.linear.backward(pass, dy.view(), &dx_view);
    }
  };
  const auto expected = [&](Operand operand, std::int64_t times) {
    const bool own_codes = operand != Operand::dgrad_w || !precision.weight_codes_shared();
    return precision[operand] && own_codes ? times : 0;
  };
  step();
  EXPECT_EQ(count_of(pass, Operand::fprop_w), expected(Operand::fprop_w, 1));
  const std::int64_t per_step = precision.signs == SignSource::fresh ? kMicrobatches : 1;
  EXPECT_EQ(count_of(pass, Operand::dgrad_w), expected(Operand::dgrad_w, per_step));
  EXPECT_EQ(count_of(pass, Operand::wgrad_x), expected(Operand::wgrad_x, kMicrobatches));
  EXPECT_EQ(count_of(pass, Operand::dgrad_dy), expected(Operand::dgrad_dy, kMicrobatches));

  const Values before = y.values();
  std::fill_n(layer.weight.value.f32(), layer.weight.value.size(), 0.5f);
  ++layer.weight.version;
  ++pass.step;
  step();
  EXPECT_EQ(count_of(pass, Operand::fprop_w), expected(Operand::fprop_w, 2));
  EXPECT_EQ(count_of(pass, Operand::dgrad_w), expected(Operand::dgrad_w, 2 * per_step));
  EXPECT_NE(y.values(), before) << "the new weights must be seen";
  pass.microbatch = kMicrobatches - 1;  // the last one
  const OperandValues values = operand_values(device(), precision, pass);
  EXPECT_TRUE(
      close(dx.values(),
            product(values.of(Operand::dgrad_dy, dy), layer.values_of(values, Operand::dgrad_w), kShape.out),
            storage, 1e-5))
      << "by the backward pass too";
}

INSTANTIATE_TEST_SUITE_P(All, LinearRecipes,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::ValuesIn(recipe_cases())),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
                         });

// ---------------------------------------------------------------------------------------------------------------------

class LinearProperties : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam()); }

  static Recipe recipe_of(const std::string& name) {
    PrecisionConfig config;
    config.recipe = name;
    return {config, kBlocks};
  }

  /// One forward pass of a fresh layer on what input() lends.
  std::size_t saved_bytes(const std::string& name, bool training, DType storage = DType::bf16) {
    const Recipe recipe = recipe_of(name);
    Layer layer(device(), storage, kShape, random_values(kShape.out * kShape.in, 1));
    Pass pass = make_pass(recipe);
    pass.training = training;
    const MutableMatrixView x = layer.linear.input(pass, kShape.tokens);
    const TestMatrix values({storage}, kShape.tokens, kShape.in, random_values(kShape.tokens * kShape.in, 2));
    device().cast({values.view(), x});
    TestMatrix y({storage}, kShape.tokens, kShape.out);
    layer.linear.forward(pass, as_const(x), y.mutable_view());
    return layer.linear.saved_bytes();
  }
};

TEST_P(LinearProperties, KeepsCodesOfItsInputWhereWgradIsQuantized) {
  constexpr std::size_t kElements = kShape.tokens * kShape.in;
  EXPECT_EQ(saved_bytes("nvfp4", true), kElements / 2 + kElements / 16) << "0.5625 bytes per element";
  EXPECT_EQ(saved_bytes("mxfp4", true), kElements / 2 + kElements / 32);
  EXPECT_EQ(saved_bytes("bf16", true), kElements * 2);
  EXPECT_EQ(saved_bytes("bf16", true, DType::f32), kElements * 4);
  EXPECT_EQ(saved_bytes("nvfp4", false), 0u) << "evaluation keeps nothing";
  EXPECT_EQ(saved_bytes("bf16", false), 0u);
}

TEST_P(LinearProperties, QuantizedLayersShareOneInputBuffer) {
  const Recipe recipe = recipe_of("nvfp4");
  const Recipe bf16 = recipe_of("bf16");
  Layer layer(device(), DType::bf16, kShape, random_values(kShape.out * kShape.in, 1));
  Linear second(device(), layer.scratch, layer.weight, "blocks.10.second", kBlock, kId + 1, DType::bf16);
  Pass pass = make_pass(recipe);
  EXPECT_EQ(layer.linear.input(pass, kShape.tokens).data, second.input(pass, kShape.tokens).data);
  pass.recipe = &bf16;
  EXPECT_NE(layer.linear.input(pass, kShape.tokens).data, second.input(pass, kShape.tokens).data);
}

TEST_P(LinearProperties, WorksWithAParameterThatNobodyHasChangedYet) {
  for (const char* name : {"bf16", "nvfp4"}) {
    const Recipe recipe = recipe_of(name);
    Layer layer(device(), DType::bf16, {16, 16, 16}, Values(256, 1.0));
    Pass pass = make_pass(recipe);
    const TestMatrix x({DType::bf16}, 16, 16, Values(256, 1.0));
    TestMatrix y({DType::bf16}, 16, 16);
    layer.linear.forward(pass, x.view(), y.mutable_view());
    EXPECT_EQ(y.values(), Values(256, 16.0)) << name;
  }
}

TEST_P(LinearProperties, ReportsWhereAValueIsNotFinite) {
  if (device().name() != "cpu") GTEST_SKIP() << "a device reports nothing without telemetry";
  const Recipe recipe = recipe_of("nvfp4");
  const auto first_report = [&](double x_value, double w_value, double dy_value, bool training = true) {
    Values weights = random_values(kShape.out * kShape.in, 1);
    Values x = random_values(kShape.tokens * kShape.in, 2);
    Values dy = random_values(kShape.tokens * kShape.out, 3);
    weights[100] *= w_value;
    x[1000] *= x_value;
    dy[1000] *= dy_value;
    Layer layer(device(), DType::bf16, kShape, weights);
    Pass pass = make_pass(recipe);
    pass.training = training;
    const TestMatrix x_matrix({DType::bf16}, kShape.tokens, kShape.in, x);
    const TestMatrix dy_matrix({DType::bf16}, kShape.tokens, kShape.out, dy);
    TestMatrix y({DType::bf16}, kShape.tokens, kShape.out);
    TestMatrix dx({DType::bf16}, kShape.tokens, kShape.in);
    const MutableMatrixView dx_view = dx.mutable_view();
    layer.linear.forward(pass, x_matrix.view(), y.mutable_view());
    if (training) layer.linear.backward(pass, dy_matrix.view(), &dx_view);
    return pass.non_finite.value_or("nothing");
  };
  EXPECT_EQ(first_report(1, 1, 1), "nothing");
  EXPECT_EQ(first_report(std::nan(""), 1, 1), "blocks.10.up fprop.x");
  EXPECT_EQ(first_report(INFINITY, 1, 1, false), "blocks.10.up fprop.x");
  EXPECT_EQ(first_report(1, -INFINITY, 1), "blocks.10.up fprop.w");
  EXPECT_EQ(first_report(1, 1, std::nan("")), "blocks.10.up dgrad.dy");
  EXPECT_EQ(first_report(1, std::nan(""), INFINITY), "blocks.10.up fprop.w") << "the first one stays";
}

TEST_P(LinearProperties, SignsPerStepAreTheSameForAllMicrobatchesAndNewForEachStep) {
  PrecisionConfig config;
  config.rht.signs = "per-step";
  config.sr = std::vector<std::string>{};  // so that nothing else depends on the step
  const Recipe recipe(config, kBlocks);
  const TestMatrix x({DType::bf16}, kShape.tokens, kShape.in, random_values(kShape.tokens * kShape.in, 2));
  const TestMatrix dy({DType::bf16}, kShape.tokens, kShape.out, random_values(kShape.tokens * kShape.out, 3));
  const auto gradient = [&](std::uint32_t step, std::uint32_t microbatch) {
    Layer layer(device(), DType::bf16, kShape, random_values(kShape.out * kShape.in, 1));
    Pass pass = make_pass(recipe);
    pass.step = step;
    pass.microbatch = microbatch;
    TestMatrix y({DType::bf16}, kShape.tokens, kShape.out);
    layer.linear.forward(pass, x.view(), y.mutable_view());
    layer.linear.backward(pass, dy.view(), nullptr);
    return layer.gradient();
  };
  EXPECT_EQ(gradient(1, 0), gradient(1, 7));
  EXPECT_NE(gradient(1, 0), gradient(2, 0));
}

INSTANTIATE_TEST_SUITE_P(All, LinearProperties, ::testing::ValuesIn(backend_names()), BackendTestName());

// ---------------------------------------------------------------------------------------------------------------------
// Stochastic rounding: the mean of dx and dW over many draws is the product with the gradient as it was.

/// Mean and variance of each element over draws.
struct Moments {
  Values sum, squares;
  double draws = 0;

  void add(const Values& values) {
    sum.resize(values.size());
    squares.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum[i] += values[i];
      squares[i] += values[i] * values[i];
    }
    ++draws;
  }
  double mean(std::size_t i) const { return sum[i] / draws; }
  double standard_error(std::size_t i) const {
    const double variance = (squares[i] - sum[i] * mean(i)) / (draws - 1);
    return std::sqrt(std::max(0.0, variance) / draws);
  }
};

/// Every element within 5 standard errors of its own draws (1024 of them: a false alarm once in 1700 seeds,
/// and the seed is fixed), and their errors together of the size that independent draws have, so that the
/// mean approaches the product like 1 / sqrt(draws).
void expect_unbiased(const Moments& moments, const Values& expected, double rounding) {
  double error_squares = 0;
  double predicted_squares = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = moments.mean(i) - expected[i];
    ASSERT_LE(std::abs(error), 5 * moments.standard_error(i) + rounding) << "element " << i;
    error_squares += error * error;
    predicted_squares += std::pow(moments.standard_error(i), 2);
  }
  ASSERT_GT(predicted_squares, 0) << "nothing was rounded stochastically";
  EXPECT_NEAR(std::sqrt(error_squares / predicted_squares), 1, 0.25);
}

class LinearDraws : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr Shape kSmall{32, 32, 32};
  static constexpr int kDraws = 400;

  Backend& device() { return backend(GetParam()); }

  /// Runs of 16 of integers in [-24, 24] whose largest is 24: scales are then exact, nothing is clipped, and
  /// most values lie between two codes (quarters of the largest code, 6).
  static Values runs_of_integers(unsigned seed) {
    std::mt19937 generator(seed);
    std::uniform_int_distribution<int> pick(-24, 24);
    Values values(static_cast<std::size_t>(kSmall.tokens * kSmall.out));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = i % 16 == (i / 16) % 16 ? 24 : pick(generator);
    return values;
  }

  Moments draw(Layer& layer, Pass& pass, const TestMatrix& dy, bool of_dx, int draws) {
    const TestMatrix x({DType::f32}, kSmall.tokens, kSmall.in, random_values(kSmall.tokens * kSmall.in, 2));
    TestMatrix y({DType::f32}, kSmall.tokens, kSmall.out);
    TestMatrix dx({DType::f32}, kSmall.tokens, kSmall.in);
    const MutableMatrixView dx_view = dx.mutable_view();
    layer.linear.forward(pass, x.view(), y.mutable_view());
    Moments moments;
    for (pass.microbatch = 0; pass.microbatch < static_cast<std::uint32_t>(draws); ++pass.microbatch) {
      device().set_to_zero(layer.weight.gradient.bytes());
      layer.linear.backward(pass, dy.view(), &dx_view);
      moments.add(of_dx ? dx.values() : layer.gradient());
    }
    return moments;
  }
};

TEST_P(LinearDraws, MeanOfDxIsTheProductWithTheGradientAsItWas) {
  const Recipe recipe({}, kBlocks);
  Layer layer(device(), DType::f32, kSmall, random_values(kSmall.out * kSmall.in, 1));
  Pass pass = make_pass(recipe);
  const TestMatrix dy({DType::f32}, kSmall.tokens, kSmall.out, runs_of_integers(4));
  const Moments moments = draw(layer, pass, dy, true, kDraws);
  const OperandValues values = operand_values(device(), recipe.at(layer.linear.layer_id(), 0), pass);
  const Values weight = layer.values_of(values, Operand::dgrad_w);
  expect_unbiased(moments, product(dy.values(), weight, kSmall.out), 1e-4);

  // The same with rounding to nearest is off by more than any of this: the test can see it.
  PrecisionConfig nearest;
  nearest.sr = std::vector<std::string>{};
  const Recipe to_nearest(nearest, kBlocks);
  pass.recipe = &to_nearest;
  const Moments biased = draw(layer, pass, dy, true, 2);
  const Values expected = product(dy.values(), weight, kSmall.out);
  double stochastic_error = 0;
  double nearest_error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    stochastic_error += std::pow(moments.mean(i) - expected[i], 2);
    nearest_error += std::pow(biased.mean(i) - expected[i], 2);
  }
  EXPECT_GT(std::sqrt(nearest_error), 5 * std::sqrt(stochastic_error));
}

TEST_P(LinearDraws, MeanOfDwIsTheProductWithTheTransformedGradientAsItWas) {
  const Recipe recipe({}, kBlocks);
  Layer layer(device(), DType::f32, kSmall, random_values(kSmall.out * kSmall.in, 1));
  Pass pass = make_pass(recipe);
  // dy^T [out, tokens] such that its transform is runs of integers: the transform backwards, whose results
  // are quarters below 64 and so exact in BF16, to which the transform rounds what it is given.
  const Values wanted = runs_of_integers(5);
  Values dy_transposed(wanted.size());
  for (std::size_t run = 0; run < wanted.size(); run += 16)
    for (std::size_t r = 0; r < 16; ++r) {
      double sum = 0;
      for (std::size_t c = 0; c < 16; ++c)
        sum += (std::popcount(r & c) % 2 == 0 ? 0.25 : -0.25) * wanted[run + c];
      dy_transposed[run + r] = kFixedSigns.is_negative(static_cast<int>(r)) ? -sum : sum;
      ASSERT_LT(std::abs(sum), 64);
    }
  const TestMatrix dy({DType::f32}, kSmall.tokens, kSmall.out,
                      transposed(dy_transposed, kSmall.out, kSmall.tokens));
  const TestMatrix x({DType::f32}, kSmall.tokens, kSmall.in, random_values(kSmall.tokens * kSmall.in, 2));
  const Moments moments = draw(layer, pass, dy, false, kDraws);
  const OperandValues values = operand_values(device(), recipe.at(layer.linear.layer_id(), 0), pass);
  expect_unbiased(moments, product(wanted, values.of(Operand::wgrad_x, x), kSmall.tokens), 1e-4);
}

TEST_P(LinearDraws, DgradAndWgradRoundWithDifferentBits) {
  PrecisionConfig config;
  config.rht.gemms = std::vector<std::string>{};
  const Recipe recipe(config, kBlocks);
  const LinearPrecision precision = recipe.at({"blocks.10.up", kBlock}, 0);
  // A gradient that is its own transpose, so that both uses quantize the same matrix.
  Values symmetric = runs_of_integers(6);
  for (std::size_t r = 0; r < 32; ++r)
    for (std::size_t c = 0; c < r; ++c) symmetric[r * 32 + c] = symmetric[c * 32 + r];
  const TestMatrix dy({DType::f32}, 32, 32, symmetric);
  const OperandValues values = operand_values(device(), precision, make_pass(recipe));
  EXPECT_NE(values.of(Operand::dgrad_dy, dy), values.of(Operand::wgrad_dy, dy));
}

INSTANTIATE_TEST_SUITE_P(All, LinearDraws, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::linear_test
