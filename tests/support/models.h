// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models small enough for finite differences.

#include "tetrad/model/config.h"

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

}  // namespace tetrad::testing
