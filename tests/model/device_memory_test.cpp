// SPDX-License-Identifier: Apache-2.0
// What --dry-run says a run needs of a device is what it takes, within 5 %.

#include <gtest/gtest.h>

#include <numeric>
#include <optional>

#include "support/backends.h"
#include "support/models.h"
#include "tetrad/backend/memory.h"
#include "tetrad/model/decoder.h"
#include "tetrad/model/estimate.h"
#include "tetrad/optim/adamw_optimizer.h"

namespace tetrad::testing::device_memory_test {
namespace {

constexpr std::int64_t kSequence = 1024;

ModelConfig llama() {
  ModelConfig config;
  config.pattern = "*-*-*-*-";
  config.hidden = 1024;
  config.heads = 16;
  config.kv_heads = 4;
  config.head_dim = 64;
  config.ffn = 4096;
  config.vocab = 16384;
  return config;
}

ModelConfig hybrid() {
  ModelConfig config = llama();
  config.pattern = "M-M*-M-";
  config.rope.reset();
  config.activation = Activation::squared_relu;
  config.mamba = {.heads = 32, .head_dim = 64, .groups = 8, .state = 128};
  return config;
}

/// Two whole steps, the first with what is allocated once.
void train(Backend& backend, const ModelConfig& config, const Recipe& recipe, const MemoryCase& c) {
  Decoder decoder(backend, config, c.batch, c.sequence, c.storage, c.levers);
  AdamWOptimizer optimizer(backend, decoder.parameters(), {});
  for (const auto& parameter : decoder.parameters()) backend.set_to_zero(parameter->value.bytes());
  decoder.weights_changed();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(c.batch * c.sequence));
  std::iota(tokens.begin(), tokens.end(), 0);
  for (std::int32_t& token : tokens) token %= static_cast<std::int32_t>(config.vocab);
  std::vector<float> losses(tokens.size());
  std::int64_t after_first = 0;
  for (std::int64_t step = 1; step <= 2; ++step) {
    Pass pass;
    pass.recipe = &recipe;
    pass.step = static_cast<std::uint32_t>(step);
    pass.telemetry = c.telemetry;
    decoder.clear_gradients();
    decoder.train(pass, tokens, tokens, 1, losses);
    optimizer.step(step, 1e-4, optimizer.inspect().norm);
    decoder.evaluate(pass, tokens, tokens, losses);
    if (step == 1) after_first = backend.peak_memory();
  }
  EXPECT_EQ(backend.peak_memory(), after_first) << "everything is allocated in the first step";
}

/// The peak of training, relative to what was predicted.
double measured_over_predicted(const ModelConfig& config, const std::string& recipe_name,
                               const MemoryLevers& levers) {
  Backend& backend = device_backend();
  PrecisionConfig precision;
  precision.recipe = recipe_name;
  const Recipe recipe(precision, config.blocks());
  const MemoryCase c{.batch = 8, .sequence = kSequence, .levers = levers};
  const double predicted = estimate_memory(config, recipe, c, memory_traits(backend.name())).total();
  EXPECT_GT(predicted, 1e9);
  EXPECT_LT(predicted, static_cast<double>(backend.free_memory().value()));
  const std::int64_t before = backend.restart_peak().value();
  train(backend, config, recipe, c);
  return static_cast<double>(backend.peak_memory() - before) / predicted;
}

/// Recipe, whether it is a hybrid, recomputation (nothing: mixed).
using Parameters = std::tuple<std::string, bool, std::optional<Recompute>>;
class DeviceMemory : public ::testing::TestWithParam<Parameters> {};

TEST_P(DeviceMemory, IsWhatTheEstimateSays) {
  const auto& [recipe, is_hybrid, recompute] = GetParam();
  const ModelConfig config = is_hybrid ? hybrid() : llama();
  const double ratio = measured_over_predicted(
      config, recipe, {recompute ? *recompute : mixed_recomputation(config.pattern, 0)});
  EXPECT_NEAR(ratio, 1, 0.05);
  RecordProperty("measured_over_predicted", std::to_string(ratio));
}

TEST(DeviceMemoryOfLevers, IsWhatTheEstimateSays) {
  ModelConfig wide_heads = llama();  // whose gradients take memory for every head
  wide_heads.head_dim = 128;
  for (const ModelConfig& config : {wide_heads, hybrid()})
    for (const MemoryLevers& levers :
         {MemoryLevers{.weights_as_codes = true}, MemoryLevers{.residual_on_host = true},
          MemoryLevers{mixed_recomputation(config.pattern, 0), true, true, true}})
      EXPECT_NEAR(measured_over_predicted(config, "nvfp4", levers), 1, 0.05);
}

std::string name_of(const ::testing::TestParamInfo<Parameters>& test) {
  const auto& [recipe, is_hybrid, recompute] = test.param;
  return recipe + (is_hybrid ? "_hybrid_" : "_llama_") +
         (recompute ? std::string(tetrad::name_of(*recompute)) : "mixed");
}

INSTANTIATE_TEST_SUITE_P(All, DeviceMemory,
                         ::testing::Combine(::testing::Values("bf16", "nvfp4", "mxfp4", "fp8"),
                                            ::testing::Bool(),
                                            ::testing::Values(Recompute::none, Recompute::cheap,
                                                              Recompute::ffn, Recompute::full, std::nullopt)),
                         name_of);

}  // namespace
}  // namespace tetrad::testing::device_memory_test
