#include "tetrad/model/estimate.h"

#include <gtest/gtest.h>

#include "tetrad/model/decoder.h"
#include "tetrad/model/presets.h"

namespace tetrad {
namespace {

class Estimates : public ::testing::TestWithParam<const char*> {};

TEST_P(Estimates, PredictTheActivationsOfAModel) {
  for (const char* preset : {"quickstart", "quickstart-hybrid"}) {
    constexpr std::int64_t kBatch = 2;
    constexpr std::int64_t kSequence = 64;
    PrecisionConfig precision;
    precision.recipe = GetParam();
    const ModelConfig& config = *find_preset(preset);
    const Recipe recipe(precision, config.blocks());
    Decoder decoder(cpu_backend(), config, kBatch, kSequence);
    decoder.initialize(1);
    std::vector<std::int32_t> tokens(kBatch * kSequence, 1);
    std::vector<float> losses(tokens.size());
    Pass pass;
    pass.recipe = &recipe;
    decoder.train(pass, tokens, tokens, 1, losses);
    const double predicted = estimate_memory(config, recipe, kBatch * kSequence, DType::bf16).activations;
    EXPECT_NEAR(predicted / static_cast<double>(decoder.activation_bytes()), 1.0, 0.05) << preset;
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Estimates, ::testing::Values("bf16", "fp8", "mxfp4", "nvfp4"));

TEST(Estimate, FourBitsKeepLessThanSixteen) {
  const ModelConfig& config = *find_preset("llama3-8b");
  PrecisionConfig bf16;
  bf16.recipe = "bf16";
  const auto bytes = [&](const PrecisionConfig& precision) {
    return estimate_memory(config, Recipe(precision, config.blocks()), 8192, DType::bf16);
  };
  EXPECT_LT(bytes({}).activations, 0.85 * bytes(bf16).activations);
  EXPECT_LT(bytes({}).operands, 0.5 * bytes(bf16).operands);
  EXPECT_DOUBLE_EQ(bytes({}).weights, 4.0 * static_cast<double>(parameter_count(config)));
}

TEST(Estimate, FlopsAreSixPerParameterAndTokenPlusAttention) {
  const ModelConfig& config = *find_preset("llama3-8b");
  const double matrices =
      static_cast<double>(parameter_count(config)) - static_cast<double>(config.vocab * config.hidden);
  EXPECT_NEAR(training_flops_per_token(config, 1) / (6 * matrices), 1.0, 0.01);
  const double attention = training_flops_per_token(config, 8192) - training_flops_per_token(config, 1);
  EXPECT_NEAR(attention, 32.0 * 3 * 2 * 2 * 4096 * 8191 / 2, 1.0);
}

}  // namespace
}  // namespace tetrad
