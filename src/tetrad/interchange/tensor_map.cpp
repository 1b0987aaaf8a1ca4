// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/tensor_map.h"

#include <functional>
#include <numeric>
#include <utility>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

bool is_pairs_of_attention_and_ffn(const std::string& pattern) {
  if (pattern.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < pattern.size(); ++i)
    if (pattern[i] != (i % 2 == 0 ? '*' : '-')) return false;
  return true;
}

/// The rows of a parameter, cut one after the other.
class Cutter {
 public:
  explicit Cutter(MappedParameter& parameter) : parameter_(parameter) {}

  Cutter& cut(std::string name, std::int64_t rows, Role role = Role::other) {
    std::vector<std::int64_t> shape = parameter_.shape;
    shape.front() = rows;
    parameter_.pieces.push_back({std::move(name), std::move(shape), next_row_, role});
    next_row_ += rows;
    return *this;
  }

 private:
  MappedParameter& parameter_;
  std::int64_t next_row_ = 0;
};

class MapBuilder {
 public:
  MapBuilder(const ModelConfig& model, Family family) : model_(model), family_(family) {}

  std::vector<MappedParameter> build() {
    const bool is_llama = family_ == Family::llama;
    whole("embedding.weight", {model_.vocab, model_.hidden},
          is_llama ? "model.embed_tokens.weight" : "backbone.embeddings.weight");
    if (model_.tied) {
      map_.back().copy = "lm_head.weight";
      map_.back().writes_copy = !is_llama;
    }
    for (block_ = 0; block_ < model_.blocks(); ++block_) add_block(model_.pattern[std::size_t(block_)]);
    block_ = -1;
    whole("norm.weight", {model_.hidden}, is_llama ? "model.norm.weight" : "backbone.norm_f.weight");
    if (!model_.tied) whole("head.weight", {model_.vocab, model_.hidden}, "lm_head.weight");
    return std::move(map_);
  }

 private:
  MappedParameter& add(std::string name, std::vector<std::int64_t> shape) {
    return map_.emplace_back(MappedParameter{std::move(name), std::move(shape), {}, block_});
  }
  MappedParameter& add_linear(const std::string& name, std::int64_t out, std::int64_t in) {
    MappedParameter& parameter = add(ours(name + ".weight"), {out, in});
    parameter.linear = ours(name);
    return parameter;
  }
  void whole(std::string name, std::vector<std::int64_t> shape, std::string theirs) {
    MappedParameter& parameter = add(std::move(name), std::move(shape));
    Cutter(parameter).cut(std::move(theirs), parameter.rows());
  }
  void whole_linear(const std::string& name, std::int64_t out, std::int64_t in, std::string theirs) {
    Cutter(add_linear(name, out, in)).cut(std::move(theirs), out);
  }

  std::string ours(const std::string& name) const { return fmt::format("blocks.{}.{}", block_, name); }
  /// Of the layer that the block is in: a Llama layer is two of our blocks.
  std::string theirs(const std::string& name) const {
    return family_ == Family::llama ? fmt::format("model.layers.{}.{}", block_ / 2, name)
                                    : fmt::format("backbone.layers.{}.{}", block_, name);
  }
  std::string mixer(const char* llama, const char* name) const {
    return theirs(family_ == Family::llama ? fmt::format("{}.{}", llama, name)
                                           : fmt::format("mixer.{}", name));
  }

  void add_block(char letter) {
    const char* norm = family_ != Family::llama ? "norm.weight"
                       : letter == '*'          ? "input_layernorm.weight"
                                                : "post_attention_layernorm.weight";
    whole(ours("norm.weight"), {model_.hidden}, theirs(norm));
    if (letter == '*') add_attention();
    if (letter == '-') add_ffn();
    if (letter == 'M') add_mamba();
  }

  void add_attention() {
    const std::int64_t q = model_.heads * model_.head_dim;
    const std::int64_t kv = model_.kv_heads * model_.head_dim;
    Cutter(add_linear("qkv", q + 2 * kv, model_.hidden))
        .cut(mixer("self_attn", "q_proj.weight"), q, Role::query)
        .cut(mixer("self_attn", "k_proj.weight"), kv, Role::key)
        .cut(mixer("self_attn", "v_proj.weight"), kv);
    whole_linear("out", model_.hidden, q, mixer("self_attn", "o_proj.weight"));
  }

  void add_ffn() {
    const bool gated = model_.activation == Activation::swiglu;
    Cutter up(add_linear("up", model_.ffn * (gated ? 2 : 1), model_.hidden));
    if (gated) up.cut(mixer("mlp", "gate_proj.weight"), model_.ffn);
    up.cut(mixer("mlp", "up_proj.weight"), model_.ffn);
    whole_linear("down", model_.hidden, model_.ffn, mixer("mlp", "down_proj.weight"));
  }

  void add_mamba() {
    const Mamba2Config& m = model_.mamba;
    whole_linear("in", m.projected(), model_.hidden, theirs("mixer.in_proj.weight"));
    // theirs has a dimension of 1 in the middle: one input channel for each output
    MappedParameter& conv = add(ours("conv.weight"), {m.conv_channels(), m.conv});
    conv.pieces = {{theirs("mixer.conv1d.weight"), {m.conv_channels(), 1, m.conv}, 0}};
    whole(ours("conv.bias"), {m.conv_channels()}, theirs("mixer.conv1d.bias"));
    whole(ours("a_log"), {m.heads}, theirs("mixer.A_log"));
    whole(ours("d"), {m.heads}, theirs("mixer.D"));
    whole(ours("dt_bias"), {m.heads}, theirs("mixer.dt_bias"));
    whole(ours("gated_norm.weight"), {m.inner()}, theirs("mixer.norm.weight"));
    whole_linear("out", model_.hidden, m.inner(), theirs("mixer.out_proj.weight"));
  }

  const ModelConfig& model_;
  Family family_;
  std::int64_t block_ = -1;
  std::vector<MappedParameter> map_;
};

}  // namespace

Family family_of(const ModelConfig& model) {
  const bool gated = model.activation == Activation::swiglu;
  if (is_pairs_of_attention_and_ffn(model.pattern) && gated && model.rope) return Family::llama;
  const bool has_ffn = model.pattern.find('-') != std::string::npos;
  const bool has_attention = model.pattern.find('*') != std::string::npos;
  if ((!has_ffn || !gated) && (!has_attention || !model.rope)) return Family::nemotron_h;
  fail(
      "the model (pattern {}, {}, {}) is neither a Llama (pattern *-*-…, SwiGLU, RoPE) nor a Nemotron-H (any "
      "pattern, squared ReLU, no RoPE), so no other program could run it",
      model.pattern, gated ? "SwiGLU" : "squared ReLU", model.rope ? "RoPE" : "no RoPE");
}

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies{});
}

std::int64_t MappedParameter::columns() const { return element_count(shape) / shape.front(); }

std::vector<MappedParameter> tensor_map(const ModelConfig& model, Family family) {
  return MapBuilder(model, family).build();
}

}  // namespace tetrad
