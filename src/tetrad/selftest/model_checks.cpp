// SPDX-License-Identifier: Apache-2.0
// A step of training: that the operations fit together as they do in a run.
#include <fmt/format.h>

#include <numeric>

#include "tetrad/model/decoder.h"
#include "tetrad/optim/adamw_optimizer.h"
#include "tetrad/selftest/checks.h"

namespace tetrad::selftest {
namespace {

constexpr std::int64_t kSequences = 1;
constexpr std::int64_t kLength = 128;
constexpr std::int64_t kModelTokens = kSequences * kLength;
// As tests/model/device_test.cpp holds a device to the CPU.
constexpr double kLoss = 2e-3;
constexpr double kNorm = 2e-2;

ModelConfig llama() {
  ModelConfig config;
  config.pattern = "*-";
  config.hidden = 128;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 64;
  config.ffn = 256;
  config.vocab = 500;
  config.tied = true;
  config.rope = RopeConfig{.theta = 10000};
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

void train(Stage& stage, const ModelConfig& model, const std::string& recipe_name) {
  PrecisionConfig precision;
  precision.recipe = recipe_name;
  precision.high_precision.first = precision.high_precision.last = 0;
  const Recipe recipe(precision, model.blocks());
  const auto tokens = [&] {
    const std::int32_t* drawn =
        stage.draw_integers(kModelTokens, static_cast<std::int32_t>(model.vocab)).host_i32();
    return std::span(drawn, static_cast<std::size_t>(kModelTokens));
  };
  Decoder decoder(stage.backend(), model, kSequences, kLength);
  const OptimConfig optim{.lr = 1e-3};
  AdamWOptimizer optimizer(stage.backend(), decoder.parameters(), optim);
  decoder.initialize(3);
  Pass pass;
  pass.recipe = &recipe;
  pass.seed = 11;
  std::vector<float> losses(kModelTokens);
  decoder.clear_gradients();
  decoder.train(pass, tokens(), tokens(), 1.0f / kModelTokens, losses);
  const double norm = optimizer.inspect().norm;
  optimizer.step(1, optim.lr, norm);
  stage.note("loss", {std::accumulate(losses.begin(), losses.end(), 0.0) / kModelTokens}, kLoss);
  stage.note("gradient norm", {norm}, kNorm);
  for (const auto& parameter : decoder.parameters()) {
    Result weights{parameter->name, DType::f32, parameter->value.cols(), kRepeatable};
    weights.bytes.resize(parameter->value.bytes().size());
    stage.backend().download(parameter->value.bytes(), weights.bytes);
    stage.note(std::move(weights));
  }
}

}  // namespace

std::vector<Check> model_checks() {
  std::vector<Check> checks;
  for (const char* recipe : {"bf16", "nvfp4"}) {
    checks.push_back({"training step",
                      fmt::format("Llama in {}", recipe),
                      {},
                      [=](Stage& stage) { train(stage, llama(), recipe); },
                      true});
    checks.push_back({"training step",
                      fmt::format("hybrid in {}", recipe),
                      {},
                      [=](Stage& stage) { train(stage, hybrid(), recipe); },
                      true});
  }
  return checks;
}

}  // namespace tetrad::selftest
