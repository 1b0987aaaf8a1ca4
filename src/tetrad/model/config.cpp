// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/model/parameter_table.h"

namespace tetrad {
namespace {

constexpr std::int64_t kMaxBlocks = 4096;
constexpr std::int64_t kMaxHeadDim = 256;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;  //!< any dimension but the vocabulary
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 24;
constexpr std::int64_t kTile = 16;  //!< what quantizer blocks, and so both sides of a weight, are cut into

void require_range(std::string_view key, std::int64_t value, std::int64_t low, std::int64_t high) {
  TETRAD_CHECK(value >= low && value <= high, "model.{} is {}: it must lie between {} and {}", key, value,
               low, high);
}

void require_tiles(std::string_view what, std::int64_t value) {
  TETRAD_CHECK(value % kTile == 0,
               "{} is {}, which is not a multiple of 16 as the blocks of 4-bit formats need: use {} or {}",
               what, value, value / kTile * kTile, ceil_div(value, kTile) * kTile);
}

bool has(const ModelConfig& config, char letter) { return config.pattern.find(letter) != std::string::npos; }

void validate_rope(const RopeConfig& rope) {
  TETRAD_CHECK(std::isfinite(rope.theta) && rope.theta >= 1,
               "model.rope.theta is {}: it must be a finite number of at least 1, usually 10000 or 500000",
               rope.theta);
  if (!rope.scaling) return;
  const RopeScaling& scaling = *rope.scaling;
  TETRAD_CHECK(std::isfinite(scaling.factor) && scaling.factor >= 1,
               "model.rope.scaling.factor is {}: it must be at least 1 (1 changes nothing)", scaling.factor);
  TETRAD_CHECK(std::isfinite(scaling.high_freq_factor) && scaling.low_freq_factor > 0 &&
                   scaling.high_freq_factor > scaling.low_freq_factor,
               "model.rope.scaling: low_freq_factor ({}) must be above 0 and below high_freq_factor ({})",
               scaling.low_freq_factor, scaling.high_freq_factor);
  TETRAD_CHECK(scaling.original_context > 0,
               "model.rope.scaling.original_context is {}: give the context length before scaling",
               scaling.original_context);
}

void validate_attention(const ModelConfig& config) {
  require_range("heads", config.heads, 1, kMaxWidth);
  require_range("kv_heads", config.kv_heads, 1, config.heads);
  require_range("head_dim", config.head_dim, 1, kMaxHeadDim);
  TETRAD_CHECK(config.heads % config.kv_heads == 0,
               "model.heads ({}) is not a multiple of model.kv_heads ({}): each key/value head serves the "
               "same number of query heads",
               config.heads, config.kv_heads);
  TETRAD_CHECK(config.head_dim % 2 == 0, "model.head_dim is {}: it must be even", config.head_dim);
  require_tiles("model.heads * model.head_dim", config.heads * config.head_dim);
  require_tiles("model.kv_heads * model.head_dim", config.kv_heads * config.head_dim);
  if (config.rope) validate_rope(*config.rope);
}

void validate_mamba(const Mamba2Config& mamba) {
  require_range("mamba.heads", mamba.heads, 1, kMaxWidth);
  require_range("mamba.head_dim", mamba.head_dim, 1, kMaxHeadDim);
  require_range("mamba.groups", mamba.groups, 1, mamba.heads);
  require_range("mamba.state", mamba.state, 1, 4096);
  require_range("mamba.conv", mamba.conv, 1, 64);
  require_range("mamba.chunk", mamba.chunk, 1, 4096);
  TETRAD_CHECK(mamba.heads % mamba.groups == 0,
               "model.mamba.heads ({}) is not a multiple of model.mamba.groups ({}): each group serves the "
               "same number of heads",
               mamba.heads, mamba.groups);
  require_tiles("model.mamba.heads * model.mamba.head_dim", mamba.inner());
  require_tiles(
      "the width of Mamba's input projection (2 * heads * head_dim + 2 * groups * state + heads, of "
      "model.mamba)",
      mamba.projected());
}

void validate_text(const TextConfig& text, std::int64_t vocab) {
  require_range("text.context", text.context, 0, std::int64_t{1} << 40);
  if (text.begin) require_range("text.begin", *text.begin, 0, vocab - 1);
  if (text.end) require_range("text.end", *text.end, 0, vocab - 1);
  for (const std::int64_t token : text.ends) require_range("text.ends", token, 0, vocab - 1);
}

void validate_pattern(const ModelConfig& config) {
  TETRAD_CHECK(!config.pattern.empty(),
               "model.pattern is empty: choose a preset (model: llama-162m) or say which blocks there are, "
               "one letter each: * attention, - feed-forward, M Mamba-2");
  TETRAD_CHECK(config.blocks() <= kMaxBlocks, "model.pattern has {} blocks, more than the allowed {}",
               config.blocks(), kMaxBlocks);
  const std::size_t bad = config.pattern.find_first_not_of(kBlockLetters);
  if (bad == std::string::npos) return;
  const auto code = static_cast<unsigned char>(config.pattern[bad]);
  const std::string shown = code > ' ' && code < 0x7F ? fmt::format("'{}'", config.pattern[bad])
                                                      : fmt::format("the byte 0x{:02X}", code);
  fail("model.pattern has {} at position {}: use only * (attention), - (feed-forward) and M (Mamba-2)", shown,
       bad + 1);
}

/// Counts elements; a model too large to count is an error, not a small number.
class Counter {
 public:
  void add(const ParameterSpec& parameter, std::int64_t copies = 1) {
    std::optional<std::uint64_t> sum;
    if (std::ranges::all_of(parameter.shape, [](std::int64_t extent) { return extent >= 0; })) {
      std::vector<std::uint64_t> extents(parameter.shape.begin(), parameter.shape.end());
      extents.push_back(std::uint64_t(copies));
      if (const auto elements = checked_product(extents)) sum = checked_add(total_, *elements);
    }
    TETRAD_CHECK(sum && *sum <= std::uint64_t(std::numeric_limits<std::int64_t>::max()),
                 "the model has more parameters than can be counted: check the sizes in the model section");
    total_ = *sum;
  }
  std::int64_t total() const { return static_cast<std::int64_t>(total_); }

 private:
  std::uint64_t total_ = 0;
};

}  // namespace

void validate(const ModelConfig& config) {
  validate_pattern(config);
  require_range("hidden", config.hidden, 1, kMaxWidth);
  require_tiles("model.hidden", config.hidden);
  require_range("vocab", config.vocab, 1, kMaxVocab);
  if (has(config, '*')) validate_attention(config);
  if (has(config, '-')) {
    require_range("ffn", config.ffn, 1, kMaxWidth);
    require_tiles("model.ffn", config.ffn);
  }
  if (has(config, 'M')) validate_mamba(config.mamba);
  TETRAD_CHECK(std::isfinite(config.norm_epsilon) && config.norm_epsilon > 0,
               "model.norm_epsilon is {}: it must be above 0, usually 1e-5", config.norm_epsilon);
  TETRAD_CHECK(std::isfinite(config.init_std) && config.init_std > 0,
               "model.init_std is {}: it must be above 0, usually 0.02", config.init_std);
  validate_text(config.text, config.vocab);
  parameter_count(config);
}

std::int64_t parameter_count(const ModelConfig& config) {
  Counter count;
  ModelConfig outside = config;  // what is there without any block
  outside.pattern.clear();
  for (const ParameterSpec& parameter : model_parameters(outside)) count.add(parameter);
  for (const char letter : kBlockLetters) {
    const auto blocks = std::ranges::count(config.pattern, letter);
    if (blocks == 0) continue;
    for (const ParameterSpec& parameter : block_parameters(config, letter)) count.add(parameter, blocks);
  }
  return count.total();
}

}  // namespace tetrad
