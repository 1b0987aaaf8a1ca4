// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/estimate.h"
#include "support/cpu.h"
#include "support/models.h"

#include <gtest/gtest.h>

#include "tetrad/backend/cpu/memory.h"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/model/decoder.h"
#include "tetrad/model/flops.h"
#include "tetrad/model/presets.h"

namespace tetrad {
namespace {

using testing::cpu_backend;

/// What Decoder::activation_bytes() leaves out, in f32 or i32 per token: tokens, targets and losses, and the
/// inverse RMS of every norm.
double left_out_per_token(const ModelConfig& config) {
  std::int64_t count = 3 + 1 + config.blocks();
  for (const char letter : config.pattern) {
    if (letter == '*' && config.qk_norm) count += config.heads + config.kv_heads;
    if (letter == 'M') count += config.mamba.groups;
  }
  return static_cast<double>(count);
}

/// A recipe; or the one before a hyphen, centred, or with MS-EDEN in transforms that fit.
PrecisionConfig precision_of(const std::string& name) {
  PrecisionConfig precision;
  precision.recipe = name.substr(0, name.find('-'));
  precision.centre = name.ends_with("-centred");
  if (name.ends_with("-eden")) {
    precision.scale.backward = "eden";
    precision.rht.size = 16;
  }
  return precision;
}

class Estimates : public ::testing::TestWithParam<const char*> {};

TEST_P(Estimates, PredictTheActivationsOfAModel) {
  ModelConfig qwen3 = *find_preset("quickstart");
  qwen3.name = "quickstart with norms of heads";
  qwen3.qk_norm = true;
  for (const ModelConfig& config : {*find_preset("quickstart"), qwen3, *find_preset("quickstart-hybrid")}) {
    constexpr std::int64_t kBatch = 2;
    constexpr std::int64_t kSequence = 64;
    const Recipe recipe(precision_of(GetParam()), config.blocks());
    for (const MemoryLevers& levers :
         {MemoryLevers{Recompute::none}, MemoryLevers{Recompute::cheap}, MemoryLevers{Recompute::ffn},
          MemoryLevers{Recompute::full}, MemoryLevers{testing::mixed_recomputation(config.pattern, 0)},
          MemoryLevers{testing::mixed_recomputation(config.pattern, 1), true, true, true}}) {
      SCOPED_TRACE(config.name + ": " + levers.recompute.describe(config.pattern));
      Decoder decoder(cpu_backend(), config, kBatch, kSequence, DType::bf16, levers);
      for (const auto& parameter : decoder.parameters())  // any values do
        cpu_backend().set_to_zero(parameter->value.bytes());
      decoder.weights_changed();
      std::vector<std::int32_t> tokens(kBatch * kSequence, 1);
      std::vector<float> losses(tokens.size());
      Pass pass;
      pass.recipe = &recipe;
      decoder.train(pass, tokens, tokens, 1, losses);
      const double measured = static_cast<double>(decoder.activation_bytes()) +
                              4 * kBatch * kSequence * left_out_per_token(config);
      const MemoryEstimate estimate = estimate_memory(
          config, recipe, {.batch = kBatch, .sequence = kSequence, .levers = levers}, kCpuMemory);
      EXPECT_EQ(estimate.activations, measured);
      EXPECT_EQ(estimate.residual_on_host, decoder.activation_bytes_on_host());
      EXPECT_EQ(estimate.scratch, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Estimates,
                         ::testing::Values("bf16", "fp8", "mxfp4", "nvfp4", "tetrad-eden", "nvfp4-centred"));

MemoryEstimate estimate(const std::string& preset, const std::string& recipe, const MemoryCase& c,
                        const MemoryTraits& traits) {
  const ModelConfig& config = *find_preset(preset);
  PrecisionConfig precision;
  precision.recipe = recipe;
  return estimate_memory(config, Recipe(precision, config.blocks()), c, traits);
}

TEST(Estimate, KnowsTheBytesOfQuantizedMatrices) {
  constexpr std::int64_t kRows = 144;
  constexpr std::int64_t kCols = 272;
  Tensor x = cpu_backend().make_tensor(DType::bf16, kRows, kCols);
  cpu_backend().set_to_zero(x.bytes());
  for (const auto& [format, block] :
       {std::pair(Format::nvfp4, BlockShape{1, 16}), std::pair(Format::nvfp4, BlockShape{16, 16}),
        std::pair(Format::mxfp4, BlockShape{1, 32}), std::pair(Format::fp8, BlockShape{1, 128}),
        std::pair(Format::fp8, BlockShape{128, 128}), std::pair(Format::fp8, BlockShape::whole())}) {
    const QuantSpec spec{.format = format, .block = block};
    QuantizedTensor quantized;
    cpu_backend().quantize(x.const_view(), spec, {}, quantized);
    EXPECT_EQ(quantized_bytes(kCpuMemory, spec, Form::operand, kRows, kCols),
              static_cast<std::int64_t>(quantized.codes.capacity() + quantized.scales.capacity()))
        << describe(spec);
    EXPECT_EQ(quantized_bytes(kCudaMemory, spec, Form::packed, kRows, kCols),
              quantized_bytes(kCpuMemory, spec, Form::packed, kRows, kCols));
  }
}

TEST(Estimate, FourBitsKeepLessThanSixteen) {
  const MemoryCase c{.batch = 1, .sequence = 8192};
  const MemoryEstimate bf16 = estimate("llama3-8b", "bf16", c, kCpuMemory);
  const MemoryEstimate nvfp4 = estimate("llama3-8b", "nvfp4", c, kCpuMemory);
  EXPECT_LT(nvfp4.activations, 0.85 * bf16.activations);
  EXPECT_LT(nvfp4.operands, 0.5 * bf16.operands);
  EXPECT_DOUBLE_EQ(nvfp4.weights, 4.0 * static_cast<double>(parameter_count(*find_preset("llama3-8b"))));
  const MemoryEstimate on_gpu = estimate("llama3-8b", "nvfp4", c, kCudaMemory);
  EXPECT_DOUBLE_EQ(on_gpu.operands, bf16.operands) << "a GPU multiplies BF16 values";
  EXPECT_GT(on_gpu.scratch, 0);
}

/// The sum for BF16 by hand.
TEST(Estimate, OfALlamaOfABillionOnAGpuIsTheSumOfItsParts) {
  const MemoryCase c{.batch = 16, .sequence = 2048};
  constexpr double kTokens = 16 * 2048;
  constexpr double kLayers = 16;
  const MemoryEstimate memory = estimate("llama-1b", "bf16", c, kCudaMemory);
  const double kept_per_token =
      2 * (kLayers * (2 * 2048 + 3072 + 2048 + 2048 + 16384 + 2048 + 8192) + 2 * 2048);
  const double passing_per_token = 2 * (2 * 2048 + 3072 + 8192);
  const double f32_per_token = 4 * (kLayers * (32 + 2) + 1 + 3);
  EXPECT_NEAR(memory.activations, kTokens * (kept_per_token + passing_per_token + f32_per_token), 1e6);
  EXPECT_NEAR(memory.total(), 61.8e9, 0.1e9);
}

/// By hand, for Llama 3 8B: 64 blocks of 4096 wide, 32 heads of which 8 are of keys.
TEST(Estimate, CountsWhatEachLeverMoves) {
  MemoryCase c{.batch = 1, .sequence = 8192};
  const MemoryEstimate plain = estimate("llama3-8b", "nvfp4", c, kCudaMemory);
  EXPECT_EQ(plain.host(), 0);

  c.levers = {.residual_on_host = true};
  const MemoryEstimate residual = estimate("llama3-8b", "nvfp4", c, kCudaMemory);
  EXPECT_EQ(residual.residual_on_host, 62.0 * 8192 * 4096 * 2);
  EXPECT_EQ(plain.total() - residual.total(), residual.host());

  c.levers = {.attention_by_parts = true};
  const MemoryEstimate parts = estimate("llama3-8b", "nvfp4", c, kCudaMemory);
  EXPECT_EQ(plain.total() - parts.total(), 24.0 * 8192 * (8192 * 2 + 4)) << "eight heads at a time";

  c.levers = {.weights_as_codes = true};
  const MemoryEstimate codes = estimate("llama3-8b", "nvfp4", c, kCudaMemory);
  EXPECT_EQ(codes.operands, estimate("llama3-8b", "nvfp4", c, kCpuMemory).operands);
  EXPECT_EQ(codes.activations, plain.activations);
  EXPECT_EQ(codes.scratch - plain.scratch, 0) << "inputs that were kept take as much to be expanded";
  EXPECT_EQ(estimate("llama3-8b", "bf16", c, kCudaMemory).total(),
            estimate("llama3-8b", "bf16", {.batch = 1, .sequence = 8192}, kCudaMemory).total());
}

TEST(Estimate, HasThePlacesWhereDocumentsBegin) {
  MemoryCase c{.batch = 3, .sequence = 128};
  const double without = estimate("quickstart", "bf16", c, kCpuMemory).activations;
  c.document_mask = true;
  EXPECT_EQ(estimate("quickstart", "bf16", c, kCpuMemory).activations - without, 3 * 128 * 4);
}

TEST(Estimate, RecomputationBringsALlamaOfABillionBelowThreeFifthsOfTorch) {
  constexpr double kTorch = 63.5e9;
  for (const char* recipe : {"bf16", "fp8", "nvfp4"})
    for (const Recompute recompute : {Recompute::ffn, Recompute::full}) {
      const MemoryCase c{.batch = 16, .sequence = 2048, .levers = {recompute}};
      EXPECT_LT(estimate("llama-1b", recipe, c, kCudaMemory).total(), 0.6 * kTorch) << recipe;
    }
}

TEST(Estimate, IsOfTheTimeThatNeedsMost) {
  const ModelConfig& config = *find_preset("llama-1b");
  PrecisionConfig precision;
  precision.recipe = "fp8";
  const MemoryCase c{.batch = 16, .sequence = 2048};
  const double always = estimate_memory(config, Recipe(precision, config.blocks()), c, kCudaMemory).total();
  precision.schedule = {{.at = 0.9, .forward = "bf16", .backward = "bf16"}};
  const double later = estimate_memory(config, Recipe(precision, config.blocks()), c, kCudaMemory).total();
  EXPECT_GT(later, always);
  EXPECT_DOUBLE_EQ(later, estimate("llama-1b", "bf16", c, kCudaMemory).total());
}

TEST(Estimate, FlopsAreSixPerParameterAndTokenPlusAttention) {
  const ModelConfig& config = *find_preset("llama3-8b");
  const double matrices =
      static_cast<double>(parameter_count(config)) - static_cast<double>(config.vocab * config.hidden);
  EXPECT_NEAR(training_flops_per_token(config, 1) / (6 * matrices), 1.0, 0.01);
  const double attention = training_flops_per_token(config, 8192) - training_flops_per_token(config, 1);
  EXPECT_NEAR(attention, 32.0 * 3 * 2 * 2 * 4096 * 8191 / 2, 1.0);
}

/// By hand: the first projection of a block and what mixes tokens, never the second projection.
TEST(Estimate, CountsWhatIsComputedTwice) {
  constexpr std::int64_t kSequence = 2048;
  const auto recomputed = [](const ModelConfig& config, const RecomputePlan& plan) {
    return recomputed_flops_per_token(config, kSequence, plan);
  };
  const ModelConfig& llama = *find_preset("llama-1b");
  EXPECT_EQ(recomputed(llama, Recompute::none), 0);
  EXPECT_EQ(recomputed(llama, Recompute::cheap), 0)
      << "norms and activations are not counted in training either";
  constexpr double kUp = 2.0 * 2048 * 16384;
  constexpr double kQkv = 2.0 * 2048 * 3072;
  constexpr double kAttention = 2.0 * 2048 * (kSequence + 1);
  EXPECT_EQ(recomputed(llama, Recompute::ffn), 16 * kUp);
  EXPECT_EQ(recomputed(llama, Recompute::full), 16 * (kUp + kQkv + kAttention));
  std::vector<Keep> blocks(llama.pattern.size(), Keep::all);
  blocks[1] = blocks[3] = blocks[4] = Keep::nothing;
  EXPECT_EQ(recomputed(llama, RecomputePlan(blocks)), 2 * kUp + kQkv + kAttention);

  ModelConfig mamba = *find_preset("nemotron-h-1b");
  mamba.pattern = "MM";
  const Mamba2Config& m = mamba.mamba;
  const auto convolution = static_cast<double>(2 * m.conv_channels() * m.conv);
  EXPECT_EQ(recomputed(mamba, Recompute::ffn), 2 * convolution);
  EXPECT_EQ(
      recomputed(mamba, Recompute::full),
      2 * (convolution + static_cast<double>(2 * mamba.hidden * m.projected() + 6 * m.inner() * m.state)));
}

}  // namespace
}  // namespace tetrad
