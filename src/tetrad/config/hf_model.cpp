// SPDX-License-Identifier: Apache-2.0
#include "tetrad/config/hf_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tetrad/config/parse.h"
#include "tetrad/core/error.h"
#include "tetrad/io/strict_json.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;
using config::shown;

constexpr double kInfinity = 1e300;  //!< what `Infinity`, which JSON does not have, is read as

/// Python writes Infinity into JSON (time_step_limit has it), where no JSON parser accepts it.
std::string without_infinity(std::string_view text) {
  constexpr std::string_view kWord = "Infinity";
  std::string out;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!in_string && text.substr(i).starts_with(kWord)) {
      out += "1e300";
      i += kWord.size() - 1;
      continue;
    }
    out += c;
    if (in_string && c == '\\' && i + 1 < text.size()) out += text[++i];
    if (c == '"') in_string = !in_string;
  }
  return out;
}

/// The fields of one file, with messages that name it.
class Fields {
 public:
  Fields(Json json, std::string name) : json_(std::move(json)), name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  /// nullptr if the field is absent or null.
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  std::int64_t whole(const char* key, std::optional<std::int64_t> missing = {}) const {
    const Json* value = find_or(key, missing.has_value());
    if (value == nullptr) return *missing;
    const bool good = value->is_number_unsigned() &&
                      value->get<std::uint64_t>() <= std::uint64_t(std::numeric_limits<std::int32_t>::max());
    if (!good) refuse(key, *value, "a whole number from 0 to 2^31 - 1");
    return value->get<std::int64_t>();
  }

  double real(const char* key, std::optional<double> missing = {}) const {
    const Json* value = find_or(key, missing.has_value());
    if (value == nullptr) return *missing;
    const bool good =
        value->is_number() && std::abs(value->get<double>()) <= double{std::numeric_limits<float>::max()};
    if (!good) refuse(key, *value, "a number that a 32-bit float can hold");
    return value->get<double>();
  }

  bool flag(const char* key, bool missing) const {
    const Json* value = find(key);
    if (value == nullptr) return missing;
    if (!value->is_boolean()) refuse(key, *value, "true or false");
    return value->get<bool>();
  }

  std::string text(const char* key, const std::string& missing) const {
    const Json* value = find(key);
    if (value == nullptr) return missing;
    if (!value->is_string()) refuse(key, *value, "a text");
    return value->get<std::string>();
  }

  /// Another value would need a model that we do not have.
  void require_flag(const char* key, bool wanted, bool missing) const {
    TETRAD_CHECK(flag(key, missing) == wanted, "{}: {} is {}, which is not supported: only {} is", name_, key,
                 !wanted, wanted);
  }
  void require_text(const char* key, const std::string& wanted) const {
    const std::string found = text(key, wanted);
    TETRAD_CHECK(found == wanted, "{}: {} is {}, which is not supported: only {} is", name_, key,
                 shown(found), shown(wanted));
  }
  void require_zero(const char* key) const {
    TETRAD_CHECK(real(key, 0) == 0, "{}: {} is not 0: dropout is not supported", name_, key);
  }

  [[noreturn]] void refuse(const char* key, const Json& value, std::string_view expected) const {
    std::string found = value.type_name();
    if (value.is_string()) found = shown(value.get_ref<const std::string&>());
    if (value.is_number() || value.is_boolean()) found = value.dump();
    fail("{}: {}: expected {}, found {}", name_, key, expected, found);
  }

 private:
  /// find(); throws Error (bad input) for what may not be missing.
  const Json* find_or(const char* key, bool may_be_missing) const {
    const Json* value = find(key);
    TETRAD_CHECK(value != nullptr || may_be_missing,
                 "{}: {} is missing: is this the config.json of a language model?", name_, key);
    return value;
  }

  Json json_;
  std::string name_;
};

std::optional<RopeScaling> rope_scaling(const Fields& fields, const Json& json) {
  if (!json.is_object()) fields.refuse("rope_scaling", json, "an object");
  const Fields scaling(json, fields.name() + ": rope_scaling");
  const std::string type = scaling.text("rope_type", scaling.text("type", "default"));
  if (type == "default") return std::nullopt;
  TETRAD_CHECK(type == "llama3",
               "{}: rope_scaling has the type {}, which is not supported: only llama3 and default are",
               fields.name(), shown(type));
  return RopeScaling{.factor = static_cast<float>(scaling.real("factor")),
                     .low_freq_factor = static_cast<float>(scaling.real("low_freq_factor")),
                     .high_freq_factor = static_cast<float>(scaling.real("high_freq_factor")),
                     .original_context = scaling.whole("original_max_position_embeddings")};
}

void require_whole_rotation(const Fields& fields) {
  TETRAD_CHECK(fields.real("partial_rotary_factor", 1) == 1,
               "{}: partial_rotary_factor is not 1: partial rotation is not supported", fields.name());
}

RopeConfig rope(const Fields& fields) {
  RopeConfig result;
  result.theta = fields.real("rope_theta", 10000);
  require_whole_rotation(fields);
  if (const Json* scaling = fields.find("rope_scaling")) result.scaling = rope_scaling(fields, *scaling);
  // transformers 5 keeps theta and scaling together.
  if (const Json* json = fields.find("rope_parameters")) {
    result.scaling = rope_scaling(fields, *json);
    const Fields parameters(*json, fields.name() + ": rope_parameters");
    result.theta = parameters.real("rope_theta", result.theta);
    require_whole_rotation(parameters);
  }
  return result;
}

/// What both families share.
ModelConfig common_fields(const Fields& fields) {
  ModelConfig model;
  model.hidden = fields.whole("hidden_size");
  model.ffn = fields.whole("intermediate_size");
  model.heads = fields.whole("num_attention_heads");
  model.kv_heads = fields.whole("num_key_value_heads", model.heads);
  const std::int64_t usual = model.heads > 0 ? model.hidden / model.heads : 0;  // without attention: nothing
  model.head_dim = fields.whole("head_dim", fields.whole("attention_head_dim", usual));
  model.vocab = fields.whole("vocab_size");
  model.tied = fields.flag("tie_word_embeddings", false);
  model.init_std = static_cast<float>(fields.real("initializer_range", model.init_std));
  fields.require_flag("attention_bias", false, false);
  fields.require_flag("mlp_bias", false, false);
  fields.require_zero("attention_dropout");
  fields.require_zero("hidden_dropout");
  return model;
}

ModelConfig llama(const Fields& fields) {
  ModelConfig model = common_fields(fields);
  const std::int64_t layers = fields.whole("num_hidden_layers");
  TETRAD_CHECK(layers >= 1 && layers <= 2048, "{}: num_hidden_layers is {}: it must be from 1 to 2048",
               fields.name(), layers);
  for (std::int64_t i = 0; i < layers; ++i) model.pattern += "*-";
  fields.require_text("hidden_act", "silu");
  model.activation = Activation::swiglu;
  model.rope = rope(fields);
  model.norm_epsilon = static_cast<float>(fields.real("rms_norm_eps", 1e-6));
  return model;
}

/// A Llama with norms of queries and keys. Heads do not follow from other fields: transformers would take
/// those of one size of Qwen3.
ModelConfig qwen3(const Fields& fields) {
  ModelConfig model = llama(fields);
  model.qk_norm = true;
  model.kv_heads = fields.whole("num_key_value_heads");
  model.head_dim = fields.whole("head_dim");
  fields.require_flag("use_sliding_window", false, false);
  return model;
}

std::string hybrid_pattern(const Fields& fields) {
  std::string pattern = fields.text("hybrid_override_pattern", "");
  if (const Json* types = fields.find("layers_block_type"); types != nullptr && pattern.empty()) {
    if (!types->is_array()) fields.refuse("layers_block_type", *types, "a list");
    std::string letters;
    for (const Json& type : *types) {
      const bool is_mamba = type == "mamba" || type == "linear_attention";  // transformers 5 has new names
      const bool is_attention = type == "attention" || type == "full_attention";
      const char letter = is_mamba ? 'M' : is_attention ? '*' : type == "mlp" ? '-' : '?';
      if (letter == '?') fields.refuse("layers_block_type", type, "mamba, attention or mlp");
      letters += letter;
    }
    return letters;
  }
  TETRAD_CHECK(!pattern.empty(), "{}: hybrid_override_pattern is missing", fields.name());
  TETRAD_CHECK(pattern.find_first_not_of("M*-") == std::string::npos,
               "{}: hybrid_override_pattern is {}: only M (Mamba-2), * (attention) and - (feed-forward) are "
               "supported",
               fields.name(), shown(pattern));
  return pattern;
}

/// dt is used as it comes: a limit would change what the model computes.
void require_no_time_step_limit(const Fields& fields) {
  const Json* limit = fields.find("time_step_limit");
  if (limit == nullptr) return;
  const auto is_infinite = [](const Json& value) {
    return (value.is_number() && value.get<double>() >= kInfinity) ||
           value == Json{{"__float__", "Infinity"}};
  };
  const bool good = limit->is_array() && limit->size() == 2 && (*limit)[0] == 0 && is_infinite((*limit)[1]);
  TETRAD_CHECK(good, "{}: time_step_limit is not [0, Infinity]: limits of the time step are not supported",
               fields.name());
}

ModelConfig nemotron_h(const Fields& fields) {
  ModelConfig model = common_fields(fields);
  model.pattern = hybrid_pattern(fields);
  const std::int64_t layers = fields.whole("num_hidden_layers", model.blocks());
  TETRAD_CHECK(layers == model.blocks(),
               "{}: num_hidden_layers is {}, but hybrid_override_pattern has {} letters: the file is damaged",
               fields.name(), layers, model.blocks());
  fields.require_text("mlp_hidden_act", "relu2");
  fields.require_text("mamba_hidden_act", "silu");
  fields.require_flag("use_bias", false, false);
  fields.require_flag("mamba_proj_bias", false, false);
  fields.require_flag("use_conv_bias", true, true);
  require_no_time_step_limit(fields);
  model.activation = Activation::squared_relu;
  model.rope.reset();
  // chunk_size is how another program cuts the scan; ours keeps its own.
  model.mamba.heads = fields.whole("mamba_num_heads");
  model.mamba.head_dim = fields.whole("mamba_head_dim");
  model.mamba.groups = fields.whole("n_groups");
  model.mamba.state = fields.whole("ssm_state_size");
  model.mamba.conv = fields.whole("conv_kernel", 4);
  model.norm_epsilon =
      static_cast<float>(fields.real("layer_norm_epsilon", fields.real("rms_norm_eps", 1e-5)));
  return model;
}

struct Kind {
  std::string_view model_type, architecture;
  ModelConfig (*read)(const Fields& fields);
};
constexpr Kind kKinds[] = {{"llama", "LlamaForCausalLM", llama},
                           {"qwen3", "Qwen3ForCausalLM", qwen3},
                           {"nemotron_h", "NemotronHForCausalLM", nemotron_h}};

std::string architecture(const Fields& fields) {
  const Json* list = fields.find("architectures");
  if (list == nullptr) {
    const std::string type = fields.text("model_type", "");
    const auto* known = std::ranges::find(kKinds, std::string_view(type), &Kind::model_type);
    return known == std::end(kKinds) ? type : std::string(known->architecture);
  }
  const bool good = list->is_array() && list->size() == 1 && list->front().is_string();
  if (!good) fields.refuse("architectures", *list, "a list of one name");
  return list->front().get<std::string>();
}

}  // namespace

Json parse_hf_json(std::string_view text, const std::string& name) {
  Json json = parse_strict_json(without_infinity(text), name, {config::kMaxFileBytes, config::kMaxDepth});
  TETRAD_CHECK(json.is_object(), "{}: a config.json holds an object, {{…}}", name);
  return json;
}

ModelConfig parse_hf_model(std::string_view json, const std::string& name) {
  const Fields fields(parse_hf_json(json, name), name);
  const std::string kind = architecture(fields);
  const auto* known = std::ranges::find(kKinds, std::string_view(kind), &Kind::architecture);
  TETRAD_CHECK(known != std::end(kKinds),
               "{}: the architecture {} is not supported: only LlamaForCausalLM, Qwen3ForCausalLM and "
               "NemotronHForCausalLM are",
               name, shown(kind));
  ModelConfig model = known->read(fields);
  try {
    validate(model);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", name, error.what()), error.exit_code());
  }
  return model;
}

ModelConfig read_hf_model(const std::string& path) {
  ModelConfig model = parse_hf_model(config::read_text(path), path);
  const std::string folder = std::filesystem::absolute(path).parent_path().filename().string();
  if (!folder.empty()) model.name = folder;
  return model;
}

}  // namespace tetrad
