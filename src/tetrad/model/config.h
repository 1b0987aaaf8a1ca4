// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a model is: the shape of a decoder, as one would write it in a configuration.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/ops/activation.h"
#include "tetrad/ops/rope.h"

namespace tetrad {

struct RopeConfig {
  double theta = 500000;
  std::optional<RopeScaling> scaling = {};
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct Mamba2Config {
  std::int64_t heads = 0;
  std::int64_t head_dim = 64;
  std::int64_t groups = 8;
  std::int64_t state = 128;
  std::int64_t conv = 4;
  std::int64_t chunk = 64;  //!< tokens per chunk of the scan: changes speed and rounding, not the mathematics
  friend bool operator==(const Mamba2Config&, const Mamba2Config&) = default;

  std::int64_t inner() const { return heads * head_dim; }
  std::int64_t conv_channels() const { return inner() + 2 * groups * state; }   //!< x, B, C
  std::int64_t projected() const { return inner() + conv_channels() + heads; }  //!< z, x, B, C, dt
};

/// The texts that a model was made for, as far as others must know: no part of what it computes. Imports
/// bring it along.
struct TextConfig {
  std::int64_t context = 0;                //!< tokens; 0: as in training, or what positions are stretched to
  std::optional<std::int64_t> begin = {};  //!< token in front of a text; nothing: the tokenizer's
  std::optional<std::int64_t> end = {};    //!< what tokenizers call eos_token; nothing: the first of `ends`
  std::vector<std::int64_t> ends = {};     //!< tokens that end a text; empty: the tokenizer's separator
  friend bool operator==(const TextConfig&, const TextConfig&) = default;
};

struct ModelConfig {
  std::string name = "custom";
  /// One letter per block: `*` attention, `-` feed-forward, `M` Mamba-2. What others call a layer of Llama is
  /// "*-", two blocks.
  std::string pattern;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool qk_norm = false;  //!< a norm of each query and each key, before positions
  std::int64_t ffn = 0;
  Activation activation = Activation::swiglu;
  std::optional<RopeConfig> rope = RopeConfig{};  //!< nothing: no positions
  Mamba2Config mamba = {};
  std::int64_t vocab = 0;
  bool tied = false;  //!< one matrix for the embedding and the head
  float norm_epsilon = 1e-5f;
  float init_std = 0.02f;
  TextConfig text = {};
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;

  std::int64_t blocks() const { return static_cast<std::int64_t>(pattern.size()); }
};

/// Throws Error that names the key unless a model can be built: known letters, multiples of 16, … Only what
/// the letters of the pattern use is looked at.
void validate(const ModelConfig& config);

/// Elements of all parameters. The model should be valid; sizes that cannot be counted are an Error.
std::int64_t parameter_count(const ModelConfig& config);

}  // namespace tetrad
