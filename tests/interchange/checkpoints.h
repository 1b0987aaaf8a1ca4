// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small checkpoints of all families, as a run leaves them.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "support/cpu.h"
#include "support/files.h"
#include "tetrad/checkpoint/checkpoint_store.h"
#include "tetrad/checkpoint/snapshot.h"
#include "tetrad/config/config.h"
#include "tetrad/interchange/checkpoint_source.h"
#include "tetrad/io/safetensors.h"
#include "tetrad/model/decoder.h"
#include "tetrad/optim/adamw_optimizer.h"
#include "tetrad/tokenizer/bpe.h"

namespace tetrad::testing {

/// Every dimension differs from every other, so that a mix-up of two shows.
inline ModelConfig small_llama(bool tied) {
  ModelConfig model;
  model.name = "small-llama";
  model.pattern = "*-*-*-";
  model.hidden = 64;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 32;
  model.ffn = 192;
  model.vocab = 272;
  model.tied = tied;
  model.rope = RopeConfig{.theta = 10000, .scaling = RopeScaling{8, 1, 4, 64}};
  return model;
}

/// Without scaling of positions, which llama.cpp does not have for it.
inline ModelConfig small_qwen3(bool tied) {
  ModelConfig model = small_llama(tied);
  model.name = "small-qwen3";
  model.qk_norm = true;
  model.rope->scaling.reset();
  return model;
}

inline ModelConfig small_hybrid(bool tied) {
  ModelConfig model;
  model.name = "small-hybrid";
  model.pattern = "M-M*-";
  model.hidden = 64;
  model.heads = 4;
  model.kv_heads = 1;
  model.head_dim = 16;
  model.ffn = 144;
  model.activation = Activation::squared_relu;
  model.vocab = 272;
  model.tied = tied;
  model.rope.reset();
  model.mamba = {.heads = 8, .head_dim = 16, .groups = 2, .state = 18, .conv = 4, .chunk = 24};
  return model;
}

inline Config small_config(const ModelConfig& model) {
  Config config;
  config.model = model;
  config.precision.recipe = "nvfp4";
  config.precision.high_precision.first = 1;
  config.precision.high_precision.last = 1;
  config.train.sequence = 32;
  config.train.batch = 2;
  config.train.steps = 1;
  return config;
}

/// A checkpoint with random weights, norms included.
inline std::filesystem::path make_checkpoint(const std::filesystem::path& run, const Config& config,
                                             const std::string& tokenizer_hash = {},
                                             const std::string& tokenizer_json = {}) {
  Backend& backend = cpu_backend();
  Decoder decoder(backend, config.model, 1, config.train.sequence);
  decoder.initialize(7);
  for (const auto& parameter : decoder.parameters())
    if (parameter->shape.size() == 1)
      for (std::int64_t i = 0; i < parameter->value.size(); ++i)
        parameter->value.f32()[i] += 0.01f * static_cast<float>(i % 17);
  AdamWOptimizer optimizer(backend, decoder.parameters(), config.optim);
  RunState state;
  state.step = 1;
  state.data = nlohmann::json::object();
  state.loss_watch = nlohmann::json::object();
  state.tokenizer_hash = tokenizer_hash;
  CheckpointStore store(run / "checkpoints", 2);
  return store.write(make_snapshot(decoder, optimizer, state, {to_yaml(config), tokenizer_json})).path;
}

/// Our parameters, by name.
inline std::map<std::string, std::vector<float>> read_weights(const std::filesystem::path& checkpoint) {
  const SafetensorsFile file(checkpoint / "model.safetensors");
  std::map<std::string, std::vector<float>> weights;
  for (const TensorInfo& info : file.tensors()) {
    EXPECT_EQ(info.dtype, DType::f32) << info.name;
    std::vector<float>& values = weights[info.name];
    values.resize((info.end - info.begin) / sizeof(float));
    std::memcpy(values.data(), file.bytes(info).data(), info.end - info.begin);
  }
  return weights;
}

/// Equal to the bit.
inline void expect_same_weights(const std::map<std::string, std::vector<float>>& actual,
                                const std::map<std::string, std::vector<float>>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, values] : expected) {
    const auto found = actual.find(name);
    ASSERT_NE(found, actual.end()) << name;
    ASSERT_EQ(found->second.size(), values.size()) << name;
    EXPECT_EQ(std::memcmp(found->second.data(), values.data(), values.size() * sizeof(float)), 0) << name;
  }
}

/// All bytes, a merge, and a token between documents.
inline BpeDefinition small_bpe() {
  BpeDefinition definition = byte_definition();
  definition.tokens.emplace_back("th");
  definition.merges.emplace_back('t', 'h');
  definition.tokens.emplace_back();
  definition.added.push_back({.id = 257, .content = std::string(kEndOfText)});
  return definition;
}

struct Example {
  std::string name;
  ModelConfig model;
};

inline std::vector<Example> examples() {
  return {{"llama_tied", small_llama(true)},   {"llama_untied", small_llama(false)},
          {"qwen3_tied", small_qwen3(true)},   {"qwen3_untied", small_qwen3(false)},
          {"hybrid_tied", small_hybrid(true)}, {"hybrid_untied", small_hybrid(false)}};
}

// NOLINTNEXTLINE(readability-identifier-naming): the name is GoogleTest's
inline void PrintTo(const Example& example, std::ostream* out) { *out << example.name; }

}  // namespace tetrad::testing
