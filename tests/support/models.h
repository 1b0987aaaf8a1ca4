// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models small enough for finite differences.

#include <array>
#include <string>
#include <vector>

#include "tetrad/model/config.h"
#include "tetrad/model/recompute.h"

namespace tetrad::testing {

/// A Llama: attention with positions, SwiGLU, one matrix for embedding and head.
inline ModelConfig tiny_llama() {
  ModelConfig config;
  config.pattern = "*-*-";
  config.hidden = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.ffn = 48;
  config.vocab = 40;
  config.tied = true;
  config.rope = RopeConfig{.theta = 100, .scaling = {}};
  config.init_std = 0.15f;  // large, so that every parameter matters in so small a model
  return config;
}

/// A Qwen3: the same with norms of queries and keys.
inline ModelConfig tiny_qwen3() {
  ModelConfig config = tiny_llama();
  config.qk_norm = true;
  return config;
}

/// A hybrid: Mamba-2, squared ReLU, attention without positions, a head of its own.
inline ModelConfig tiny_hybrid() {
  ModelConfig config = tiny_llama();
  config.pattern = "M-*-";
  config.tied = false;
  config.rope.reset();
  config.activation = Activation::squared_relu;
  config.mamba = {.heads = 16, .head_dim = 4, .groups = 2, .state = 4, .conv = 4, .chunk = 8};
  return config;
}

/// How many plans mixed_recomputation() gives.
inline constexpr std::size_t kMixedPlans = 4;

/// Blocks of every kind that keep all, products and nothing side by side: neighbours differ, and over all
/// plans every block keeps each of them.
inline RecomputePlan mixed_recomputation(const std::string& pattern, std::size_t plan) {
  constexpr std::array kKeeps = {Keep::all, Keep::nothing, Keep::products, Keep::nothing};
  std::vector<Keep> blocks;
  for (std::size_t i = 0; i < pattern.size(); ++i)
    blocks.push_back(kKeeps[(i + i / 2 + plan) % kKeeps.size()]);
  return RecomputePlan(blocks);
}

}  // namespace tetrad::testing
