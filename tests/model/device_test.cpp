// SPDX-License-Identifier: Apache-2.0
// The same model on a device and on the CPU: the same data gives the same losses and gradients but for the
// order of sums, and the same run gives the same bits.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "support/backends.h"
#include "support/cpu.h"
#include "support/gradient.h"
#include "tetrad/model/decoder.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/optim/adamw_optimizer.h"

namespace tetrad::testing::device_test {
namespace {

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kSequence = 128;

ModelConfig llama() {
  ModelConfig config;
  config.pattern = "*-*-";
  config.hidden = 256;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.ffn = 512;
  config.vocab = 1000;
  config.tied = true;
  config.rope = RopeConfig{.theta = 10000, .scaling = {}};
  return config;
}

ModelConfig hybrid() {
  ModelConfig config = llama();
  config.pattern = "M-*-";
  config.tied = false;
  config.rope.reset();
  config.activation = Activation::squared_relu;
  config.mamba = {.heads = 16, .head_dim = 64, .groups = 2, .state = 64, .conv = 4, .chunk = 64};
  return config;
}

std::vector<std::int32_t> random_tokens(unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> pick(0, 999);
  std::vector<std::int32_t> tokens(kBatch * kSequence);
  for (std::int32_t& token : tokens) token = pick(generator);
  return tokens;
}

/// A few steps of training; everything that came out of them.
struct Training {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> weights;

  Training(Backend& backend, const ModelConfig& config, const std::string& recipe_name, int steps,
           const MemoryLevers& levers = {}) {
    PrecisionConfig precision;
    precision.recipe = recipe_name;
    const Recipe recipe(precision, config.blocks());
    Decoder decoder(backend, config, kBatch, kSequence, DType::bf16, levers);
    OptimConfig optim;
    optim.lr = 1e-3;
    AdamWOptimizer optimizer(backend, decoder.parameters(), optim);
    decoder.initialize(3);
    std::vector<float> token_losses(kBatch * kSequence);
    for (int step = 0; step < steps; ++step) {
      Pass pass;
      pass.recipe = &recipe;
      pass.seed = 11;
      pass.step = static_cast<std::uint32_t>(step);
      decoder.clear_gradients();
      decoder.train(pass, random_tokens(static_cast<unsigned>(step)),
                    random_tokens(static_cast<unsigned>(step) + 100), 1.0f / (kBatch * kSequence),
                    token_losses);
      losses.push_back(std::accumulate(token_losses.begin(), token_losses.end(), 0.0) / (kBatch * kSequence));
      norms.push_back(optimizer.inspect().norm);
      optimizer.step(step + 1, optim.lr, norms.back());
    }
    for (const auto& parameter : decoder.parameters()) {
      Buffer copy;
      const auto bytes = backend.readable(parameter->value.bytes(), copy);
      const auto* values = reinterpret_cast<const float*>(bytes.data());
      weights.insert(weights.end(), values, values + parameter->value.size());
    }
  }
};

class OnDeviceAndCpu : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  static ModelConfig config() { return std::get<1>(GetParam()) ? hybrid() : llama(); }
  static const std::string& recipe() { return std::get<0>(GetParam()); }
};

TEST_P(OnDeviceAndCpu, FirstStepsAgree) {
  const Training cpu(cpu_backend(), config(), recipe(), 3);
  const Training cuda(device_backend(), config(), recipe(), 3);
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(cuda.losses[i], cpu.losses[i], 2e-3 * cpu.losses[i]) << "step " << i;
    EXPECT_NEAR(cuda.norms[i], cpu.norms[i], 2e-2 * cpu.norms[i]) << "step " << i;
  }
}

TEST_P(OnDeviceAndCpu, WhatSavesMemoryChangesNoBit) {
  const Training plain(device_backend(), config(), recipe(), 3);
  for (const MemoryLevers& levers :
       {MemoryLevers{.weights_as_codes = true}, MemoryLevers{.residual_on_host = true},
        MemoryLevers{Recompute::full, true, true, true}})
    EXPECT_TRUE(Training(device_backend(), config(), recipe(), 3, levers).weights == plain.weights);
}

TEST_P(OnDeviceAndCpu, ARecordedPassGivesTheSameBits) {
  PrecisionConfig precision;
  precision.recipe = recipe();
  const Recipe table(precision, config().blocks());
  Backend& backend = device_backend();
  // With copies beside it, which are recorded too.
  Decoder decoder(backend, config(), kBatch, kSequence, DType::bf16, {.residual_on_host = true});
  decoder.initialize(3);
  Pass pass;
  pass.recipe = &table;
  std::vector<float> losses(kBatch * kSequence);
  decoder.train(pass, random_tokens(1), random_tokens(2), 1, losses);
  const auto replay = backend.record([&] { decoder.differentiate(pass, 1); });
  ASSERT_TRUE(replay);
  const auto gradients_of = [&](const std::function<void()>& differentiate) {
    decoder.clear_gradients();
    differentiate();
    std::vector<std::byte> all;
    for (const auto& parameter : decoder.parameters()) {
      Buffer copy;
      const auto bytes = backend.readable(parameter->gradient.bytes(), copy);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  };
  const auto launched = gradients_of([&] { decoder.differentiate(pass, 1); });
  EXPECT_TRUE(gradients_of(replay) == launched);
  EXPECT_FALSE(gradients_of([] {}) == launched);
}

TEST_P(OnDeviceAndCpu, TheSameRunGivesTheSameBits) {
  const Training one(device_backend(), config(), recipe(), 3);
  const Training two(device_backend(), config(), recipe(), 3);
  EXPECT_EQ(one.losses, two.losses);
  EXPECT_EQ(one.norms, two.norms);
  EXPECT_TRUE(one.weights == two.weights);
}

INSTANTIATE_TEST_SUITE_P(All, OnDeviceAndCpu,
                         ::testing::Combine(::testing::Values("bf16", "nvfp4", "mxfp4", "fp8"),
                                            ::testing::Bool()),
                         [](const auto& test) {
                           return std::get<0>(test.param) + (std::get<1>(test.param) ? "_hybrid" : "_llama");
                         });

/// Gradients of attention in one part, and in two: enough heads of 128 that the smaller limit is felt.
TEST(AttentionByParts, GivesTheSameBitsInLessMemory) {
  constexpr std::int64_t kTokens = 4096;
  constexpr AttentionShape kShape{1, kTokens, 64, 8, 128, 0.088388f};
  Backend& backend = device_backend();
  const auto random = [&](std::int64_t cols, unsigned seed) {
    Tensor tensor = backend.make_tensor(DType::bf16, kTokens, cols);
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<Bf16> values(static_cast<std::size_t>(tensor.size()));
    for (Bf16& value : values) value = Bf16::from_f32(normal(generator));
    backend.upload(std::as_bytes(std::span(values)), tensor.bytes());
    return tensor;
  };
  const std::int64_t width = kShape.heads * kShape.head_dim;
  const std::int64_t kv_width = kShape.kv_heads * kShape.head_dim;
  const Tensor q = random(width, 1);
  const Tensor k = random(kv_width, 2);
  const Tensor v = random(kv_width, 3);
  const Tensor dout = random(width, 4);
  Tensor out = backend.make_tensor(DType::bf16, kTokens, width);
  Tensor log_sum_exp = backend.make_tensor(DType::f32, kShape.heads, kTokens);
  backend.attention(AttentionForward{kShape, q.view(), k.view(), v.view(), out.view(), log_sum_exp.f32()});
  struct Gradients {
    std::vector<std::byte> bytes;
    std::int64_t memory;
  };
  const auto gradients = [&](bool by_parts) {
    Tensor dq = backend.make_tensor(DType::bf16, kTokens, width);
    Tensor dk = backend.make_tensor(DType::bf16, kTokens, kv_width);
    Tensor dv = backend.make_tensor(DType::bf16, kTokens, kv_width);
    const std::int64_t before = backend.restart_peak().value();
    backend.attention(AttentionBackward{kShape, q.view(), k.view(), v.view(), out.const_view(),
                                        log_sum_exp.f32(), dout.view(), dq.view(), dk.view(), dv.view(),
                                        nullptr, by_parts});
    Gradients result{{}, backend.peak_memory() - before};
    for (const Tensor* tensor : {&dq, &dk, &dv}) {
      Buffer copy;
      const auto bytes = backend.readable(tensor->bytes(), copy);
      result.bytes.insert(result.bytes.end(), bytes.begin(), bytes.end());
    }
    return result;
  };
  const Gradients whole = gradients(false);
  const Gradients parts = gradients(true);
  EXPECT_TRUE(parts.bytes == whole.bytes);
  constexpr std::int64_t kFewerBytes = std::int64_t{1} << 30;  // of two GiB, where cuDNN computes them
  if (whole.memory > kFewerBytes) {
    EXPECT_LE(parts.memory, whole.memory - kFewerBytes + (1 << 20));
  }
}

}  // namespace
}  // namespace tetrad::testing::device_test
