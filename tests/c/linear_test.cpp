// SPDX-License-Identifier: Apache-2.0
// The linear layer of the C interface gives the bits of ops/linear.h, which has tests of its own.

#include "tetrad/ops/linear.h"
#include "c/interface.h"
#include "oracle/inputs.h"
#include "tetrad/recipe/recipe.h"

namespace tetrad::testing::c_linear_test {
namespace {

constexpr std::int64_t kTokens = 128;
constexpr std::int64_t kIn = 64;
constexpr std::int64_t kOut = 192;
constexpr tetrad_linear_key kKey = {0x1234567890ull, 3, 2, 6, 0};

LinearPrecision precision_of(const std::string& recipe) {
  PrecisionConfig config;
  config.recipe = recipe;
  config.high_precision.first = config.high_precision.last = 0;
  return Recipe(config, 1).at({"linear", 0}, 0);
}

class CLinear : public CInterface {
 protected:
  void SetUp() override {
    CInterface::SetUp();
    x_ = upload(oracle::make_input("gaussian", kTokens, kIn));
    w_ = upload(oracle::make_input("heavy_tailed", kOut, kIn));
    dy_ = upload(oracle::make_input("gaussian", kTokens, kOut));
  }
  void TearDown() override {
    tetrad_precision_free(precision_);
    CInterface::TearDown();
  }

  static MatrixView input(const Buffer& buffer, std::int64_t rows, std::int64_t cols) {
    return {buffer.data(), DType::f32, rows, cols, cols, 1};
  }
  static MutableMatrixView output(Buffer& buffer, std::int64_t rows, std::int64_t cols) {
    return {buffer.data(), DType::f32, rows, cols, cols, 1};
  }
  Buffer zeros(std::int64_t rows, std::int64_t cols) {
    return upload(std::vector<float>(static_cast<std::size_t>(rows * cols)));
  }

  tetrad_linear_forward_args forward_args(Buffer& y, Buffer& saved) {
    tetrad_linear_forward_args args = {};
    args.struct_size = sizeof(args);
    args.precision = precision_;
    args.key = kKey;
    args.x = matrix(x_, kTokens, kIn);
    args.w = matrix(w_, kOut, kIn);
    args.y = matrix(y, kTokens, kOut);
    args.saved = saved.data();
    args.saved_bytes = saved.size();
    return args;
  }
  tetrad_linear_backward_args backward_args(Buffer& dx, Buffer& dw) {
    tetrad_linear_backward_args args = {};
    args.struct_size = sizeof(args);
    args.precision = precision_;
    args.key = kKey;
    args.dy = matrix(dy_, kTokens, kOut);
    args.w = matrix(w_, kOut, kIn);
    args.dx = matrix(dx, kTokens, kIn);
    args.dw = matrix(dw, kOut, kIn);
    args.accumulate = 1;
    return args;
  }

  Buffer x_, w_, dy_;
  tetrad_precision* precision_ = nullptr;
};

TEST_P(CLinear, GivesTheBitsOfOps) {
  for (const std::string recipe : {"bf16", "fp8", "mxfp4", "nvfp4"}) {
    SCOPED_TRACE(recipe);
    tetrad_precision_free(precision_);
    expect_ok(tetrad_precision_from_recipe(recipe.c_str(), &precision_));

    // What ops/linear.h makes of it.
    const LinearPrecision precision = precision_of(recipe);
    const LinearCall call{*backend_, precision, {kKey.seed, kKey.step, kKey.microbatch, kKey.layer}};
    LinearWorkspace workspace;
    WeightForm fprop, dgrad;
    QuantizedTensor codes;
    Buffer y = zeros(kTokens, kOut), dx = zeros(kTokens, kIn), dw = zeros(kOut, kIn);
    const MatrixView weight = input(w_, kOut, kIn);
    LinearForward forward{input(x_, kTokens, kIn),
                          linear_weight(call, Operand::fprop_w, weight, DType::f32, fprop),
                          output(y, kTokens, kOut), workspace, &codes};
    LinearBackward backward{input(dy_, kTokens, kOut), linear_forward(call, forward), workspace};
    backward.weight = precision.weight_form_shared()
                          ? forward.weight.transposed()
                          : linear_weight(call, Operand::dgrad_w, weight, DType::f32, dgrad);
    backward.dx = output(dx, kTokens, kIn);
    backward.dw = output(dw, kOut, kIn);
    linear_backward(call, backward);
    backend_->synchronize();

    std::size_t saved_bytes = 0;
    expect_ok(tetrad_linear_saved_bytes(precision_, kTokens, kIn, &saved_bytes));
    EXPECT_EQ(saved_bytes > 0, recipe != "bf16");
    Buffer saved = memory(saved_bytes);
    Buffer c_y = zeros(kTokens, kOut);
    const tetrad_linear_forward_args f = forward_args(c_y, saved);
    expect_ok(tetrad_linear_forward(context_, &f));
    EXPECT_EQ(download(c_y), download(y));

    // With what forward saved, and with x alone.
    for (const bool with_saved : {true, false}) {
      Buffer c_dx = zeros(kTokens, kIn), c_dw = zeros(kOut, kIn);
      tetrad_linear_backward_args b = backward_args(c_dx, c_dw);
      if (with_saved) {
        b.saved = saved.data();
        b.saved_bytes = saved.size();
      }
      if (!with_saved || saved_bytes == 0) b.x = matrix(x_, kTokens, kIn);
      expect_ok(tetrad_linear_backward(context_, &b));
      EXPECT_EQ(download(c_dx), download(dx)) << with_saved;
      EXPECT_EQ(download(c_dw), download(dw)) << with_saved;
    }
  }
}

TEST_P(CLinear, OperandsCanBeSaidOneByOne) {
  tetrad_quantizer nvfp4, transformed;
  expect_ok(tetrad_quantizer_init(&nvfp4, sizeof(nvfp4), "nvfp4", nullptr, nullptr));
  expect_ok(tetrad_quantizer_init(&transformed, sizeof(transformed), "nvfp4", nullptr, nullptr));
  transformed.hadamard = 16;
  const tetrad_quantizer* mismatched[TETRAD_OPERANDS] = {nullptr, nullptr, nullptr,
                                                         nullptr, &nvfp4,  &transformed};
  expect_refused(tetrad_precision_from_operands(mismatched, &precision_), "same Hadamard");
  const tetrad_quantizer* wgrad_only[TETRAD_OPERANDS] = {nullptr, nullptr,      nullptr,
                                                         nullptr, &transformed, &transformed};
  expect_ok(tetrad_precision_from_operands(wgrad_only, &precision_));

  // The forward pass and dx are then those of the plain layer, dW is not.
  tetrad_precision* plain = nullptr;
  expect_ok(tetrad_precision_from_recipe("bf16", &plain));
  std::vector<std::vector<std::byte>> y, dx, dw;
  for (const tetrad_precision* precision :
       {const_cast<const tetrad_precision*>(precision_), const_cast<const tetrad_precision*>(plain)}) {
    Buffer out = zeros(kTokens, kOut), nothing, gradient = zeros(kTokens, kIn), weights = zeros(kOut, kIn);
    tetrad_linear_forward_args f = forward_args(out, nothing);
    f.precision = precision;
    expect_ok(tetrad_linear_forward(context_, &f));
    tetrad_linear_backward_args b = backward_args(gradient, weights);
    b.precision = precision;
    b.x = matrix(x_, kTokens, kIn);
    expect_ok(tetrad_linear_backward(context_, &b));
    y.push_back(download(out));
    dx.push_back(download(gradient));
    dw.push_back(download(weights));
  }
  tetrad_precision_free(plain);
  EXPECT_EQ(y[0], y[1]);
  EXPECT_EQ(dx[0], dx[1]);
  EXPECT_NE(dw[0], dw[1]);
}

TEST_P(CLinear, AContextServesLayersOfEveryShape) {
  // An unquantized weight is cast to the type of x in memory of the context: here 64 x 192 after 192 x 64.
  expect_ok(tetrad_precision_from_recipe("bf16", &precision_));
  Buffer nothing;
  Buffer x = memory(kTokens * kOut * 2);
  const Buffer values = upload(oracle::make_input("gaussian", kTokens, kOut));
  backend_->cast({input(values, kTokens, kOut), {x.data(), DType::bf16, kTokens, kOut, kOut, 1}});
  backend_->synchronize();
  const auto run = [&](tetrad_context* context, bool wide) {
    const std::int64_t in = wide ? kOut : kIn, out = wide ? kIn : kOut;
    Buffer y = zeros(kTokens, out);
    tetrad_linear_forward_args f = forward_args(y, nothing);
    f.x = matrix(x, kTokens, in, TETRAD_BF16);
    f.w = matrix(w_, out, in);
    f.y = matrix(y, kTokens, out);
    expect_ok(tetrad_linear_forward(context, &f));
    return download(y);
  };
  const std::vector<std::byte> alone = run(context_, true);
  run(context_, false);
  EXPECT_EQ(run(context_, true), alone);
}

TEST_P(CLinear, RefusesWhatDoesNotFit) {
  expect_refused(tetrad_precision_from_recipe("int8", &precision_), "int8");
  expect_ok(tetrad_precision_from_recipe("nvfp4", &precision_));
  Buffer y = zeros(kTokens, kOut), nothing, dx = zeros(kTokens, kIn), dw = zeros(kOut, kIn);
  tetrad_linear_forward_args f = forward_args(y, nothing);
  f.w.cols = f.w.row_stride = kIn / 2;
  expect_refused(tetrad_linear_forward(context_, &f), "w is");
  Buffer short_memory = memory(16);
  f = forward_args(y, short_memory);
  expect_refused(tetrad_linear_forward(context_, &f), "tetrad_linear_saved_bytes");
  tetrad_linear_backward_args b = backward_args(dx, dw);
  expect_refused(tetrad_linear_backward(context_, &b), "x");
  b.dw = {};
  expect_ok(tetrad_linear_backward(context_, &b));  // dx alone needs no x
}

INSTANTIATE_TEST_SUITE_P(All, CLinear, ::testing::ValuesIn(context_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tetrad::testing::c_linear_test
