// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/presets.h"

#include <algorithm>
#include <string>
#include <vector>

namespace tetrad {
namespace {

/// The pattern of a Llama: so many times attention, then feed-forward.
std::string llama_pattern(int count) {
  std::string pattern;
  for (int i = 0; i < count; ++i) pattern += "*-";
  return pattern;
}

/// Models that train in minutes on a CPU; bytes are their tokens.
std::vector<ModelConfig> quickstart_models() {
  return {
      {.name = "quickstart",
       .pattern = llama_pattern(4),
       .hidden = 128,
       .heads = 4,
       .kv_heads = 2,
       .head_dim = 32,
       .ffn = 384,
       .rope = RopeConfig{.theta = 10000},
       .vocab = 256,
       .tied = true},
      // Sixteen narrow heads, because the width of the input projection must be a multiple of 16.
      {.name = "quickstart-hybrid",
       .pattern = "M-M*-M-",
       .hidden = 128,
       .heads = 4,
       .kv_heads = 2,
       .head_dim = 32,
       .ffn = 512,
       .activation = Activation::squared_relu,
       .rope = std::nullopt,
       .mamba = {.heads = 16, .head_dim = 16, .groups = 2, .state = 32},
       .vocab = 256,
       .tied = true},
  };
}

/// Models for one GPU.
std::vector<ModelConfig> single_gpu_models() {
  return {
      {.name = "llama-162m",
       .pattern = llama_pattern(12),
       .hidden = 768,
       .heads = 12,
       .kv_heads = 12,
       .head_dim = 64,
       .ffn = 2048,
       .rope = RopeConfig{.theta = 10000},
       .vocab = 50304},
      {.name = "llama-1b",
       .pattern = llama_pattern(16),
       .hidden = 2048,
       .heads = 32,
       .kv_heads = 8,
       .head_dim = 64,
       .ffn = 8192,
       .rope = RopeConfig{.theta = 500000},
       .vocab = 32768},
      // Nemotron-H's proportions (attention in about one block of 13) at 1B.
      {.name = "nemotron-h-1b",
       .pattern = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-",
       .hidden = 2048,
       .heads = 16,
       .kv_heads = 4,
       .head_dim = 128,
       .ffn = 8192,
       .activation = Activation::squared_relu,
       .rope = std::nullopt,
       .mamba = {.heads = 64, .head_dim = 64, .groups = 8, .state = 128},
       .vocab = 32768},
  };
}

/// The models of arXiv 2509.25149; positions, where there are any, are RoPE.
std::vector<ModelConfig> paper_models() {
  return {
      // The paper does not print theta.
      {.name = "paper-1.2b",
       .pattern = llama_pattern(20),
       .hidden = 2048,
       .heads = 16,
       .kv_heads = 8,
       .head_dim = 128,
       .ffn = 6144,
       .activation = Activation::squared_relu,
       .rope = RopeConfig{.theta = 10000},
       .vocab = 131072},
      {.name = "nemotron-h-8b",
       .pattern = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
       .hidden = 4096,
       .heads = 32,
       .kv_heads = 4,
       .head_dim = 128,
       .ffn = 21504,
       .activation = Activation::squared_relu,
       .rope = std::nullopt,
       .mamba = {.heads = 128, .head_dim = 64, .groups = 8, .state = 128},
       .vocab = 131072},
      {.name = "nemotron-h-12b",
       .pattern = "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-",
       .hidden = 5120,
       .heads = 40,
       .kv_heads = 8,
       .head_dim = 128,
       .ffn = 20480,
       .activation = Activation::squared_relu,
       .rope = std::nullopt,
       .mamba = {.heads = 128, .head_dim = 80, .groups = 8, .state = 128},
       .vocab = 131072},
  };
}

std::vector<ModelConfig> llama3_models() {
  return {
      {.name = "llama3-8b",
       .pattern = llama_pattern(32),
       .hidden = 4096,
       .heads = 32,
       .kv_heads = 8,
       .head_dim = 128,
       .ffn = 14336,
       .rope = RopeConfig{.theta = 500000},
       .vocab = 128256},
      {.name = "llama3.1-405b",
       .pattern = llama_pattern(126),
       .hidden = 16384,
       .heads = 128,
       .kv_heads = 8,
       .head_dim = 128,
       .ffn = 53248,
       .rope = RopeConfig{.theta = 500000, .scaling = RopeScaling{}},
       .vocab = 128256},
  };
}

std::vector<ModelConfig> all_models() {
  std::vector<ModelConfig> all;
  for (const auto& group : {quickstart_models(), single_gpu_models(), paper_models(), llama3_models()})
    all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace

std::span<const ModelConfig> presets() {
  static const std::vector<ModelConfig> all = all_models();
  return all;
}

const ModelConfig* find_preset(std::string_view name) {
  const auto all = presets();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const ModelConfig& m) { return m.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace tetrad
