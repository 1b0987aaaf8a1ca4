// SPDX-License-Identifier: Apache-2.0
#pragma once
// A small model with random weights, to serve.

#include <string>

#include "support/cpu.h"
#include "support/matrices.h"
#include "tetrad/model/decoder.h"
#include "tetrad/ops/backend.h"

namespace tetrad::testing {

inline ModelConfig small_config(bool hybrid) {
  ModelConfig config;
  config.pattern = hybrid ? "M-*-" : "*-*-";
  config.hidden = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.ffn = 48;
  config.vocab = 256;
  config.tied = !hybrid;
  config.activation = hybrid ? Activation::squared_relu : Activation::swiglu;
  config.mamba = {.heads = 16, .head_dim = 4, .groups = 2, .state = 16, .conv = 4, .chunk = 8};
  config.init_std = 0.2f;  // large, so that tokens before matter
  return config;
}

struct SmallModel {
  explicit SmallModel(const std::string& recipe_name, bool hybrid = false, DType storage = DType::bf16)
      : decoder(cpu_backend(), small_config(hybrid), 1, 16, storage),
        recipe(precision_of(recipe_name), small_config(hybrid).blocks()) {
    decoder.initialize(7);
  }
  Pass pass() const {
    Pass result;
    result.recipe = &recipe;
    result.progress = 1;
    return result;
  }

  Decoder decoder;
  Recipe recipe;

 private:
  static PrecisionConfig precision_of(const std::string& name) {
    PrecisionConfig config;
    config.recipe = name;
    config.high_precision.first = 0;
    config.high_precision.last = 0;
    return config;
  }
};

}  // namespace tetrad::testing
