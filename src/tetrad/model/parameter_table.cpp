// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/parameter_table.h"

#include <utility>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

constexpr std::string_view kWeight = ".weight";

ParameterSpec vector_of(std::string name, std::int64_t size, Initial initial) {
  return {.name = std::move(name), .shape = {size}, .initial = initial, .decays = false};
}

ParameterSpec linear_of(const std::string& name, std::int64_t out, std::int64_t in, Initial initial,
                        std::vector<ParameterPart> parts = {}) {
  return {.name = name + std::string(kWeight),
          .shape = {out, in},
          .initial = initial,
          .is_linear = true,
          .parts = std::move(parts)};
}

std::vector<ParameterSpec> attention_parameters(const ModelConfig& c) {
  const std::int64_t q = c.heads * c.head_dim;
  const std::int64_t kv = c.kv_heads * c.head_dim;
  std::vector<ParameterSpec> all = {
      vector_of("norm.weight", c.hidden, Initial::ones),
      linear_of("qkv", q + 2 * kv, c.hidden, Initial::normal, {{"q", q}, {"k", kv}, {"v", kv}}),
      linear_of("out", c.hidden, q, Initial::residual)};
  if (c.qk_norm)
    for (const char* name : {"q_norm.weight", "k_norm.weight"})
      all.push_back(vector_of(name, c.head_dim, Initial::ones));
  return all;
}

std::vector<ParameterSpec> ffn_parameters(const ModelConfig& c) {
  const bool gated = c.activation == Activation::swiglu;
  std::vector<ParameterPart> parts;
  if (gated) parts = {{"gate", c.ffn}, {"up", c.ffn}};
  return {vector_of("norm.weight", c.hidden, Initial::ones),
          linear_of("up", c.ffn * (gated ? 2 : 1), c.hidden, Initial::normal, std::move(parts)),
          linear_of("down", c.hidden, c.ffn, Initial::residual)};
}

std::vector<ParameterSpec> mamba2_parameters(const ModelConfig& c) {
  const Mamba2Config& m = c.mamba;
  return {vector_of("norm.weight", c.hidden, Initial::ones),
          linear_of("in", m.projected(), c.hidden, Initial::normal),
          {.name = "conv.weight",
           .shape = {m.conv_channels(), m.conv},
           .initial = Initial::conv,
           .decays = false},
          vector_of("conv.bias", m.conv_channels(), Initial::zeros),
          vector_of("a_log", m.heads, Initial::decay),
          vector_of("d", m.heads, Initial::ones),
          vector_of("dt_bias", m.heads, Initial::time_step),
          vector_of("gated_norm.weight", m.inner(), Initial::ones),
          linear_of("out", c.hidden, m.inner(), Initial::residual)};
}

}  // namespace

std::string ParameterSpec::full_name() const {
  return block < 0 ? name : fmt::format("blocks.{}.{}", block, name);
}

std::string ParameterSpec::linear_name() const { return name.substr(0, name.size() - kWeight.size()); }

std::vector<ParameterSpec> block_parameters(const ModelConfig& config, char letter) {
  switch (letter) {
    case '*':
      return attention_parameters(config);
    case '-':
      return ffn_parameters(config);
    case 'M':
      return mamba2_parameters(config);
    default:
      fail("model.pattern: '{}' is no block; valid letters: * (attention), - (feed-forward), M (Mamba-2)",
           letter);
  }
}

std::vector<ParameterSpec> model_parameters(const ModelConfig& config) {
  std::vector<ParameterSpec> all;
  all.push_back({.name = "embedding.weight", .shape = {config.vocab, config.hidden}});
  for (std::int64_t block = 0; block < config.blocks(); ++block)
    for (ParameterSpec& spec : block_parameters(config, config.pattern[static_cast<std::size_t>(block)])) {
      spec.block = block;
      all.push_back(std::move(spec));
    }
  all.push_back(vector_of("norm.weight", config.hidden, Initial::ones));
  if (!config.tied) all.push_back({.name = "head.weight", .shape = {config.vocab, config.hidden}});
  return all;
}

std::vector<LinearShape> linear_shapes(const ModelConfig& config, char letter) {
  std::vector<LinearShape> shapes;
  for (const ParameterSpec& spec : block_parameters(config, letter))
    if (spec.is_linear) shapes.push_back({spec.linear_name(), spec.shape[0], spec.shape[1]});
  return shapes;
}

}  // namespace tetrad
