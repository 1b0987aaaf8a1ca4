// SPDX-License-Identifier: Apache-2.0
// Recipes as configurations have them: a layer of the C interface gives the bits of the program's layer, and
// products those of the backend.

#include <algorithm>
#include <cstring>
#include <utility>

#include "c/interface.h"
#include "oracle/inputs.h"
#include "tetrad/model/linear.h"
#include "tetrad/ops/file_random.h"

namespace tetrad::testing::c_recipe_test {
namespace {

constexpr std::int64_t kTokens = 128;
constexpr std::int64_t kIn = 64;
constexpr std::int64_t kOut = 192;
constexpr std::int64_t kBlocks = 20;
constexpr std::int64_t kBlock = 10;
constexpr std::uint32_t kId = 6;
constexpr tetrad_random_key kKey = {0x1234567890ull, 3, 2};

struct Described {
  std::string text;  //!< for the C interface
  PrecisionConfig config;
  double progress = 0;
};

PrecisionConfig config_of(std::string recipe, const auto& change) {
  PrecisionConfig config;
  config.recipe = std::move(recipe);
  change(config);
  return config;
}

std::vector<Described> descriptions() {
  using C = PrecisionConfig&;
  return {
      {"nvfp4", config_of("nvfp4", [](C) {})},
      {R"({"recipe": "fp8"})", config_of("fp8", [](C) {})},
      {R"({"recipe": "tetrad", "scale": "eden"})",
       config_of("tetrad", [](C c) { c.scale.backward = "eden"; })},
      {R"({"recipe": "nvfp4", "centre": true})", config_of("nvfp4", [](C c) { c.centre = true; })},
      {R"({"recipe": "nvfp4", "centre": true, "source": "fprop"})", config_of("nvfp4",
                                                                              [](C c) {
                                                                                c.centre = true;
                                                                                c.source = "fprop";
                                                                              })},
      {R"({"recipe": "nvfp4", "sr": ["gradients", "activations", "weights"], "weights_2d": false})",
       config_of("nvfp4",
                 [](C c) {
                   c.sr = {"gradients", "activations", "weights"};
                   c.weights_2d = false;
                 })},
      {R"({"recipe": "nvfp4", "rht": {"gemms": ["wgrad"], "signs": "per-step"}})",
       config_of("nvfp4",
                 [](C c) {
                   c.rht.gemms = {"wgrad"};
                   c.rht.signs = "per-step";
                 })},
      {R"({"recipe": "nvfp4", "schedule": [{"at": 0.5, "backward": "bf16"}]})",
       config_of("nvfp4",
                 [](C c) {
                   c.schedule = {{0.5, {}, "bf16"}};
                 }),
       0.75},
      {R"({"recipe": "nvfp4", "high_precision": {"match": ["*.up"]}})",
       config_of("nvfp4", [](C c) { c.high_precision.match = {"*.up"}; })},
  };
}

class CRecipe : public CInterface {
 protected:
  void TearDown() override {
    tetrad_precision_free(precision_);
    tetrad_recipe_free(recipe_);
    CInterface::TearDown();
  }

  tetrad_layer layer(double progress = 0) const {
    return {sizeof(tetrad_layer), "blocks.10.up", kBlock, kOut, progress};
  }
  void make_precision(const std::string& text, double progress) {
    tetrad_precision_free(std::exchange(precision_, nullptr));
    tetrad_recipe_free(std::exchange(recipe_, nullptr));
    expect_ok(tetrad_recipe_parse(text.c_str(), kBlocks, &recipe_));
    const tetrad_layer where = layer(progress);
    expect_ok(tetrad_precision_of_layer(recipe_, &where, &precision_));
  }
  Tensor tensor(const char* input, std::int64_t rows, std::int64_t cols) {
    return {upload(oracle::make_input(input, rows, cols)), DType::f32, rows, cols};
  }
  Tensor zeros(std::int64_t rows, std::int64_t cols) {
    return {upload(std::vector<float>(static_cast<std::size_t>(rows * cols))), DType::f32, rows, cols};
  }
  static tetrad_matrix matrix_of(Tensor& tensor) {
    return {tensor.view().data, tensor.rows(), tensor.cols(), tensor.cols(), 1, TETRAD_F32, 0};
  }
  std::vector<std::byte> bytes_of(const Tensor& tensor) {
    expect_ok(tetrad_synchronize(context_));
    backend_->synchronize();
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.size()) * sizeof(float));
    backend_->download(tensor.bytes(), bytes);
    return bytes;
  }

  tetrad_recipe* recipe_ = nullptr;
  tetrad_precision* precision_ = nullptr;
};

TEST_P(CRecipe, ALayerGivesTheBitsOfTheProgramsLayer) {
  const bool on_device = GetParam() == "cuda";
  Tensor x = tensor("gaussian", kTokens, kIn), dy = tensor("gaussian", kTokens, kOut);
  const Buffer key = upload(std::vector<tetrad_random_key>{kKey});
  for (const Described& described : descriptions()) {
    SCOPED_TRACE(described.text);
    Parameter weight;
    weight.name = "blocks.10.up.weight";
    weight.shape = {kOut, kIn};
    weight.value = tensor("heavy_tailed", kOut, kIn);
    weight.gradient = zeros(kOut, kIn);
    Scratch scratch(*backend_);
    Linear linear(*backend_, scratch, weight, "blocks.10.up", kBlock, kId, DType::f32);
    const Recipe recipe(described.config, kBlocks);
    Pass pass;
    pass.recipe = &recipe;
    pass.seed = kKey.seed;
    pass.step = kKey.step;
    pass.microbatch = kKey.microbatch;
    pass.progress = described.progress;
    pass.training = true;
    Tensor y = zeros(kTokens, kOut), dx = zeros(kTokens, kIn);
    const MutableMatrixView gradient = dx.view();
    linear.forward(pass, x.const_view(), y.view());
    linear.backward(pass, dy.const_view(), &gradient);

    make_precision(described.text, described.progress);
    std::size_t bytes = 0;
    expect_ok(tetrad_linear_saved_bytes(precision_, kTokens, kIn, &bytes));
    Buffer saved = memory(bytes);
    Tensor c_y = zeros(kTokens, kOut);
    tetrad_linear_forward_args f = {};
    f.struct_size = sizeof(f);
    f.precision = precision_;
    f.key.layer = kId;
    // A device cannot tell the host which signs to draw, so it is told them by value.
    const bool by_value = on_device && (recipe.at({"blocks.10.up", kBlock, kOut}, described.progress).signs !=
                                            SignSource::spec ||
                                        described.config.sr);
    if (by_value) {
      f.key.seed = kKey.seed;
      f.key.step = kKey.step;
      f.key.microbatch = kKey.microbatch;
    } else {
      f.random_key = key.as<tetrad_random_key>();
    }
    f.x = matrix_of(x);
    f.w = matrix_of(weight.value);
    f.y = matrix_of(c_y);
    f.saved = saved.data();
    f.saved_bytes = saved.size();
    expect_ok(tetrad_linear_forward(context_, &f));
    EXPECT_EQ(bytes_of(c_y), bytes_of(y));

    for (const bool with_saved : {true, false}) {
      Tensor c_dx = zeros(kTokens, kIn), c_dw = zeros(kOut, kIn);
      tetrad_linear_backward_args b = {};
      b.struct_size = sizeof(b);
      b.precision = precision_;
      b.key = f.key;
      b.random_key = f.random_key;
      b.dy = matrix_of(dy);
      b.w = matrix_of(weight.value);
      b.dx = matrix_of(c_dx);
      b.dw = matrix_of(c_dw);
      b.accumulate = 1;
      if (with_saved && bytes > 0) {
        b.saved = saved.data();
        b.saved_bytes = bytes;
      } else {
        b.x = matrix_of(x);
      }
      expect_ok(tetrad_linear_backward(context_, &b));
      EXPECT_EQ(bytes_of(c_dx), bytes_of(dx)) << with_saved;
      EXPECT_EQ(bytes_of(c_dw), bytes_of(weight.gradient)) << with_saved;
    }
  }
}

TEST_P(CRecipe, SaysWhatItIs) {
  make_precision("nvfp4", 0);
  std::size_t needed = 0;
  expect_ok(tetrad_precision_describe(precision_, nullptr, 0, &needed));
  std::string line(needed, '?');
  expect_ok(tetrad_precision_describe(precision_, line.data(), line.size(), nullptr));
  EXPECT_NE(line.find("hadamard 16"), std::string::npos) << line;
  EXPECT_EQ(line.back(), '\0');
  char little[8];
  expect_ok(tetrad_precision_describe(precision_, little, sizeof(little), nullptr));
  EXPECT_EQ(std::string(little), line.substr(0, 7));

  std::int64_t multiple = 0;
  for (const auto& [text, expected] : {std::pair("bf16", 1), std::pair("nvfp4", 16), std::pair("mxfp4", 32),
                                       std::pair(R"({"recipe": "nvfp4", "scale": "eden"})", 128)}) {
    make_precision(text, 0);
    expect_ok(tetrad_precision_token_multiple(precision_, &multiple));
    EXPECT_EQ(multiple, expected) << text;
  }
}

TEST_P(CRecipe, RefusesWhatNoConfigurationMaySay) {
  const auto refused = [&](const char* text, const char* word) {
    expect_refused(tetrad_recipe_parse(text, kBlocks, &recipe_), word);
  };
  refused("int4", "int4");
  refused("", "recipe");
  refused("{recipe: nvfp4, colour: red}", "colour");
  refused("{recipe: nvfp4, rht: {size: 24}}", "24");
  refused("{recipe: nvfp4", "");
  refused("{recipe: nvfp4, schedule: [{at: 0.5, forward: bf16}, {at: 0.5, forward: fp8}]}", "order");
  refused(nullptr, "NULL");
  expect_refused(tetrad_recipe_parse("nvfp4", -1, &recipe_), "blocks");
  make_precision("nvfp4", 0);
  const tetrad_layer late = layer(1.5);
  expect_refused(tetrad_precision_of_layer(recipe_, &late, &precision_), "progress");
}

TEST_P(CRecipe, QuantizersAreThoseOfTheProgramsCommand) {
  tetrad_quantizer quantizer;
  expect_ok(tetrad_quantizer_init(&quantizer, sizeof(quantizer), "nvfp4", nullptr, nullptr));
  expect_ok(tetrad_quantizer_set_scale(&quantizer, "search"));
  EXPECT_EQ(quantizer.scale, TETRAD_SCALE_SEARCH);
  expect_refused(tetrad_quantizer_set_scale(&quantizer, "up"), "up");
  expect_ok(tetrad_quantizer_draw_signs(&quantizer, 77));
  EXPECT_TRUE(std::ranges::equal(quantizer.long_signs, signs_of_file(77).word));
  EXPECT_EQ(tetrad_tensor_of_name("lm_head.weight"), tensor_of_name("lm_head.weight"));
  EXPECT_NE(tetrad_tensor_of_name("a"), tetrad_tensor_of_name("b"));

  // All 128 signs count: the second half of a transform of 32 is not the first half again.
  quantizer.hadamard = 128;
  Tensor x = tensor("gaussian", 16, 256);
  QuantSpec spec{.hadamard = 128, .signs = signs_of_file(77), .scaling = Scaling::search};
  QuantizedTensor expected;
  backend_->quantize(x.const_view(), spec, {.telemetry = Telemetry::none}, expected);
  Buffer codes = memory(16 * 128), scales = memory(16 * 16), amax = memory(sizeof(float));
  const tetrad_quantized out = {sizeof(out),   codes.data(),  codes.size(),
                                scales.data(), scales.size(), amax.as<float>()};
  const tetrad_matrix input = matrix_of(x);
  expect_ok(tetrad_quantize(context_, &input, &quantizer, nullptr, &out, nullptr));
  backend_->synchronize();
  EXPECT_EQ(download(codes), download(expected.codes));
}

TEST_P(CRecipe, ProductsAreTheBackends) {
  Tensor a = tensor("gaussian", kTokens, kIn), b = tensor("heavy_tailed", kIn, kOut);
  QuantizedTensor qa, qb;
  const QuantSpec along_rows{}, along_cols{.axis = 0};
  backend_->quantize(a.const_view(), along_rows, {.telemetry = Telemetry::full}, qa);
  backend_->quantize(b.const_view(), along_cols, {.telemetry = Telemetry::full}, qb);
  Tensor expected = zeros(kTokens, kOut), out = zeros(kTokens, kOut);
  backend_->gemm(qa, qb, expected.view(), Accumulate::no);
  backend_->synchronize();

  tetrad_quantizer quantizers[2];
  for (tetrad_quantizer& quantizer : quantizers)
    expect_ok(tetrad_quantizer_init(&quantizer, sizeof(quantizer), "nvfp4", nullptr, nullptr));
  quantizers[1].axis = 0;
  Buffer amax_a = upload(std::vector<float>{qa.amax}), amax_b = upload(std::vector<float>{qb.amax});
  const tetrad_quantized memory_a = {sizeof(tetrad_quantized), qa.codes.data(),  qa.codes.size(),
                                     qa.scales.data(),         qa.scales.size(), amax_a.as<float>()};
  const tetrad_quantized memory_b = {sizeof(tetrad_quantized), qb.codes.data(),  qb.codes.size(),
                                     qb.scales.data(),         qb.scales.size(), amax_b.as<float>()};
  tetrad_operand left = {sizeof(left), {}, &quantizers[0], &memory_a, kTokens, kIn};
  const tetrad_operand right = {sizeof(right), {}, &quantizers[1], &memory_b, kOut, kIn};
  const tetrad_matrix result = matrix_of(out);
  expect_ok(tetrad_matmul(context_, &left, &right, &result));
  EXPECT_EQ(bytes_of(out), bytes_of(expected));

  quantizers[1].hadamard = 16;
  expect_refused(tetrad_matmul(context_, &left, &right, &result), "same Hadamard");
  quantizers[1].hadamard = 0;
  left.quantizer = nullptr;
  expect_refused(tetrad_matmul(context_, &left, &right, &result), "a is NULL");
  const tetrad_operand plain = {sizeof(plain), matrix_of(a), nullptr, nullptr, 0, 0};
  expect_refused(tetrad_matmul(context_, &plain, &plain, &result), "");
}

INSTANTIATE_TEST_SUITE_P(All, CRecipe, ::testing::ValuesIn(context_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tetrad::testing::c_recipe_test
