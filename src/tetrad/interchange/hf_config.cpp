// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/hf_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tetrad {
namespace {

using Json = nlohmann::ordered_json;

/// transformers takes time_step_min, from which it draws initial values, for the least time step of a prompt
/// too (but not of a token that follows it), and our models have none. It needs the logarithm, so the value
/// is not zero, but so small that no state changes: softplus(-69).
constexpr double kNoLeastTimeStep = 1e-30;

/// The shortest decimal number that is read as this f32: 1e-5 and not 9.999999747378752e-06.
double shortest(float value) { return std::stod(fmt::format("{}", value)); }

const char* torch_name(DType dtype) {
  if (dtype == DType::f32) return "float32";
  return dtype == DType::f16 ? "float16" : "bfloat16";
}

Json token(const std::optional<std::int32_t>& id) { return id ? Json(*id) : Json(nullptr); }

/// One is a number, several are a list.
Json tokens(const std::vector<std::int32_t>& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? Json(ids.front()) : Json(ids);
}

void add_common(Json& json, const ModelConfig& model, const HfConfigOptions& options) {
  json["vocab_size"] = model.vocab;
  json["hidden_size"] = model.hidden;
  json["intermediate_size"] = model.ffn;
  json["num_attention_heads"] = model.heads;
  json["num_key_value_heads"] = model.kv_heads;
  json["head_dim"] = model.head_dim;
  json["max_position_embeddings"] = options.context;
  json["tie_word_embeddings"] = model.tied;
  json["attention_bias"] = false;
  json["mlp_bias"] = false;
  json["attention_dropout"] = 0.0;
  json["initializer_range"] = shortest(model.init_std);
  json["use_cache"] = true;
  json["bos_token_id"] = token(options.begin_of_text);
  json["eos_token_id"] = tokens(options.ends_of_text);
  json["pad_token_id"] = nullptr;
  json["torch_dtype"] = torch_name(options.dtype);
}

void add_rope(Json& json, const RopeConfig& rope) {
  json["rope_theta"] = rope.theta;
  json["rope_scaling"] = nullptr;
  if (!rope.scaling) return;
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", shortest(rope.scaling->factor)},
                          {"low_freq_factor", shortest(rope.scaling->low_freq_factor)},
                          {"high_freq_factor", shortest(rope.scaling->high_freq_factor)},
                          {"original_max_position_embeddings", rope.scaling->original_context}};
}

/// Llama's, and that of Qwen3, which differs in nothing that needs another field.
Json llama(const ModelConfig& model, const HfConfigOptions& options) {
  Json json = {{"architectures", {model.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM"}},
               {"model_type", model.qk_norm ? "qwen3" : "llama"}};
  json["num_hidden_layers"] = model.blocks() / 2;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = shortest(model.norm_epsilon);
  add_common(json, model, options);
  add_rope(json, model.rope.value());
  return json;
}

Json nemotron_h(const ModelConfig& model, const HfConfigOptions& options) {
  Json json = {{"architectures", {"NemotronHForCausalLM"}}, {"model_type", "nemotron_h"}};
  json["num_hidden_layers"] = model.blocks();
  json["hybrid_override_pattern"] = model.pattern;
  json["mlp_hidden_act"] = "relu2";
  json["layer_norm_epsilon"] = shortest(model.norm_epsilon);
  json["mamba_num_heads"] = model.mamba.heads;
  json["mamba_head_dim"] = model.mamba.head_dim;
  json["ssm_state_size"] = model.mamba.state;
  json["n_groups"] = model.mamba.groups;
  json["conv_kernel"] = model.mamba.conv;
  json["chunk_size"] = model.mamba.chunk;
  json["mamba_hidden_act"] = "silu";
  json["use_conv_bias"] = true;
  json["use_bias"] = false;
  json["mamba_proj_bias"] = false;
  json["hidden_dropout"] = 0.0;
  json["residual_in_fp32"] = false;
  json["time_step_min"] = kNoLeastTimeStep;
  json["time_step_max"] = 0.1;
  json["time_step_floor"] = 1e-4;
  add_common(json, model, options);
  return json;  // time_step_limit is left out: its default is [0, infinity], which JSON cannot say
}

}  // namespace

Json hf_config(const ModelConfig& model, Family family, const HfConfigOptions& options) {
  return has_paired_blocks(family) ? llama(model, options) : nemotron_h(model, options);
}

Json hf_generation_config(const HfConfigOptions& options) {
  Json json = {{"do_sample", true}, {"temperature", 1.0}};
  if (options.begin_of_text) json["bos_token_id"] = *options.begin_of_text;
  if (!options.ends_of_text.empty()) json["eos_token_id"] = tokens(options.ends_of_text);
  return json;
}

}  // namespace tetrad
