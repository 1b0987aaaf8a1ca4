// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/tensor_map.h"

#include <functional>
#include <numeric>
#include <utility>

#include "tetrad/core/error.h"
#include "tetrad/model/parameter_table.h"

namespace tetrad {
namespace {

bool is_pairs_of_attention_and_ffn(const std::string& pattern) {
  if (pattern.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < pattern.size(); ++i)
    if (pattern[i] != (i % 2 == 0 ? '*' : '-')) return false;
  return true;
}

Role role_of(std::string_view part) {
  if (part == "q") return Role::query;
  return part == "k" ? Role::key : Role::other;
}

/// The pieces of a parameter, in the order of their rows.
std::vector<Piece> pieces_of(const ModelConfig& model, Family family, const ParameterSpec& spec) {
  const auto names = [&](std::string_view part) {
    if (spec.block < 0) return names_outside(family, spec.name);
    const char letter = model.pattern[static_cast<std::size_t>(spec.block)];
    return names_in_block(family, spec.block, letter, spec.name, part);
  };
  // Theirs has a dimension of 1 in the middle: one input channel for each output.
  if (spec.name == "conv.weight") return {{names(""), {spec.shape[0], 1, spec.shape[1]}}};
  if (spec.parts.empty()) return {{names(""), spec.shape}};
  std::vector<Piece> pieces;
  std::int64_t first_row = 0;
  for (const ParameterPart& part : spec.parts) {
    std::vector<std::int64_t> shape = spec.shape;
    shape.front() = part.rows;
    pieces.push_back({names(part.name), std::move(shape), first_row, role_of(part.name)});
    first_row += part.rows;
  }
  return pieces;
}

}  // namespace

Family family_of(const ModelConfig& model) {
  const bool gated = model.activation == Activation::swiglu;
  if (is_pairs_of_attention_and_ffn(model.pattern) && gated && model.rope)
    return model.qk_norm ? Family::qwen3 : Family::llama;
  const bool has_ffn = model.pattern.find('-') != std::string::npos;
  const bool has_attention = model.pattern.find('*') != std::string::npos;
  if ((!has_ffn || !gated) && (!has_attention || (!model.rope && !model.qk_norm))) return Family::nemotron_h;
  fail(
      "the model (pattern {}, {}, {}, {}) is neither a Llama or Qwen3 (pattern *-*-…, SwiGLU, RoPE) nor a "
      "Nemotron-H (any pattern, squared ReLU, no RoPE, no QK-norm), so no other program could run it",
      model.pattern, gated ? "SwiGLU" : "squared ReLU", model.rope ? "RoPE" : "no RoPE",
      model.qk_norm ? "QK-norm" : "no QK-norm");
}

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies{});
}

std::int64_t MappedParameter::columns() const { return element_count(shape) / shape.front(); }

std::vector<MappedParameter> tensor_map(const ModelConfig& model, Family family) {
  std::vector<MappedParameter> map;
  for (const ParameterSpec& spec : model_parameters(model)) {
    MappedParameter parameter{spec.full_name(), spec.shape, pieces_of(model, family, spec), spec.block};
    if (spec.is_linear) parameter.linear = module_of(parameter.name);
    map.push_back(std::move(parameter));
  }
  if (model.tied) {
    map.front().copy = Piece{names_outside(family, "head.weight"), map.front().shape};
    map.front().writes_copy = family == Family::nemotron_h;
  }
  return map;
}

}  // namespace tetrad
