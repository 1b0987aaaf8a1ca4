// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/gguf_model.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "tetrad/core/error.h"
#include "tetrad/io/safetensors_header.h"

namespace tetrad {
namespace {

std::uint32_t u32(std::int64_t value) { return static_cast<std::uint32_t>(value); }

/// As llama.cpp calls the families; in the order of Family.
constexpr std::array<std::string_view, 3> kArchitectures = {"llama", "qwen3", "nemotron_h"};

std::string architecture(Family family) {
  return std::string(kArchitectures[static_cast<std::size_t>(family)]);
}

/// Per block of the pattern: `value` where the letter is there, else 0.
std::vector<std::int32_t> where_letter(const ModelConfig& model, char letter, std::int64_t value) {
  std::vector<std::int32_t> values;
  for (const char c : model.pattern) values.push_back(c == letter ? static_cast<std::int32_t>(value) : 0);
  return values;
}

constexpr std::size_t kMaxName = 200;  //!< bytes

bool is_printable(std::string_view text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7F'; };
  return !find_invalid_utf8(text) && std::ranges::none_of(text, is_control);
}

constexpr const char* kScalingPrefix = "tetrad.rope.scaling.";

void add_llama(GgufMetadata& metadata, const ModelConfig& model, const std::string& prefix) {
  const RopeConfig& rope = model.rope.value();
  metadata.insert(metadata.end(), {{prefix + "feed_forward_length", u32(model.ffn)},
                                   {prefix + "attention.head_count_kv", u32(model.kv_heads)},
                                   {prefix + "rope.dimension_count", u32(model.head_dim)},
                                   {prefix + "rope.freq_base", static_cast<float>(rope.theta)}});
  if (!rope.scaling) return;
  TETRAD_CHECK(
      !model.qk_norm,
      "llama.cpp has no scaling of positions (model.rope.scaling) for models with norms of queries and "
      "keys (model.qk_norm), which are Qwen3 to it: export with --to hf");
  // llama.cpp has the result of the scaling (rope_freqs.weight), from which it cannot be recovered.
  const std::string scaling = kScalingPrefix;
  metadata.insert(metadata.end(), {{scaling + "factor", rope.scaling->factor},
                                   {scaling + "low_freq_factor", rope.scaling->low_freq_factor},
                                   {scaling + "high_freq_factor", rope.scaling->high_freq_factor},
                                   {scaling + "original_context", u32(rope.scaling->original_context)}});
}

void add_nemotron_h(GgufMetadata& metadata, const ModelConfig& model) {
  // llama.cpp insists on both epsilons, though only another kind of the family uses this one.
  metadata.insert(metadata.end(),
                  {{"nemotron_h.attention.layer_norm_epsilon", model.norm_epsilon},
                   {"nemotron_h.feed_forward_length", where_letter(model, '-', model.ffn)},
                   {"nemotron_h.attention.head_count_kv", where_letter(model, '*', model.kv_heads)},
                   {"nemotron_h.ssm.conv_kernel", u32(model.mamba.conv)},
                   {"nemotron_h.ssm.inner_size", u32(model.mamba.inner())},
                   {"nemotron_h.ssm.state_size", u32(model.mamba.state)},
                   {"nemotron_h.ssm.time_step_rank", u32(model.mamba.heads)},
                   {"nemotron_h.ssm.group_count", u32(model.mamba.groups)}});
}

/// The values of one file, with messages that name it.
class Metadata {
 public:
  Metadata(const GgufHeader& header, const std::string& architecture)
      : header_(header), prefix_(architecture + ".") {}

  const GgufHeader& header() const { return header_; }
  const std::string& where() const { return header_.where; }

  /// nullptr: there is no such value of this kind.
  template <typename T>
  const T* find(const std::string& key) const {
    return header_.find<T>(full(key));
  }
  template <typename T>
  const T& get(const std::string& key) const {
    const T* value = find<T>(key);
    TETRAD_CHECK(value != nullptr,
                 "{}: {} is missing or of another kind than llama.cpp writes it: export the file again",
                 where(), full(key));
    return *value;
  }
  std::int64_t whole(const std::string& key) const { return std::int64_t{get<std::uint32_t>(key)}; }

 private:
  std::string full(const std::string& key) const { return key.starts_with("tetrad.") ? key : prefix_ + key; }

  const GgufHeader& header_;
  std::string prefix_;
};

RopeConfig read_rope(const Metadata& metadata, std::int64_t head_dim) {
  RopeConfig rope;
  const auto* theta = metadata.find<float>("rope.freq_base");
  rope.theta = theta != nullptr ? double{*theta} : 10000;  // as llama.cpp
  const auto* type = metadata.find<std::string>("rope.scaling.type");
  const auto* rotated = metadata.find<std::uint32_t>("rope.dimension_count");
  TETRAD_CHECK((type == nullptr || *type == "none") && (rotated == nullptr || *rotated == head_dim),
               "{}: its positions are scaled ({}) or rotate a part of each head ({} of {}), which is not "
               "supported",
               metadata.where(), type == nullptr ? "no" : quoted_name(*type),
               rotated == nullptr ? 0 : *rotated, head_dim);
  const std::string prefix = kScalingPrefix;
  if (metadata.find<float>(prefix + "factor") != nullptr)
    rope.scaling = RopeScaling{
        metadata.get<float>(prefix + "factor"), metadata.get<float>(prefix + "low_freq_factor"),
        metadata.get<float>(prefix + "high_freq_factor"), metadata.whole(prefix + "original_context")};
  TETRAD_CHECK(rope.scaling || metadata.header().find_tensor(kGgufRopeFactors) == nullptr,
               "{}: a GGUF file does not say how its positions are scaled: import the safetensors",
               metadata.where());
  return rope;
}

void read_llama(ModelConfig& model, std::int64_t layers, const Metadata& metadata) {
  for (std::int64_t i = 0; i < layers; ++i) model.pattern += "*-";
  model.activation = Activation::swiglu;
  model.ffn = metadata.whole("feed_forward_length");
  const auto* kv_heads = metadata.find<std::uint32_t>("attention.head_count_kv");
  model.kv_heads = kv_heads != nullptr ? std::int64_t{*kv_heads} : model.heads;  // as llama.cpp
  model.rope = read_rope(metadata, model.head_dim);
}

void read_nemotron_h(ModelConfig& model, std::int64_t layers, const Metadata& metadata) {
  const auto& ffn = metadata.get<std::vector<std::int32_t>>("feed_forward_length");
  const auto& kv = metadata.get<std::vector<std::int32_t>>("attention.head_count_kv");
  TETRAD_CHECK(std::int64_t(ffn.size()) == layers && std::int64_t(kv.size()) == layers,
               "{}: feed_forward_length and attention.head_count_kv do not have {} entries, one for each "
               "block: export the file again",
               metadata.where(), layers);
  for (std::size_t i = 0; i < ffn.size(); ++i) {
    model.pattern += ffn[i] > 0 ? '-' : kv[i] > 0 ? '*' : 'M';
    model.ffn = std::max<std::int64_t>(model.ffn, ffn[i]);
    model.kv_heads = std::max<std::int64_t>(model.kv_heads, kv[i]);
  }
  model.activation = Activation::squared_relu;
  model.rope.reset();
  model.mamba.heads = metadata.whole("ssm.time_step_rank");
  model.mamba.groups = metadata.whole("ssm.group_count");
  model.mamba.state = metadata.whole("ssm.state_size");
  model.mamba.conv = metadata.whole("ssm.conv_kernel");
  model.mamba.head_dim =
      model.mamba.heads > 0 ? metadata.whole("ssm.inner_size") / model.mamba.heads : model.mamba.head_dim;
}

/// The file says which token ends a text, and may say which one ends a turn or a message of a conversation.
TextConfig read_text_config(const Metadata& metadata, std::int64_t vocab) {
  TextConfig text;
  text.context = metadata.whole("context_length");
  TETRAD_CHECK(text.context > 0, "{}: context_length is 0: export the file again", metadata.where());
  const auto token = [&](const char* name) -> std::optional<std::int64_t> {
    const auto* id = metadata.header().find<std::uint32_t>(fmt::format("tokenizer.ggml.{}_token_id", name));
    return id != nullptr && *id < vocab ? std::optional<std::int64_t>(*id) : std::nullopt;
  };
  text.begin = token("bos");
  for (const char* name : {"eos", "eot", "eom"})
    if (const auto id = token(name); id && std::ranges::find(text.ends, *id) == text.ends.end())
      text.ends.push_back(*id);
  return text;
}

}  // namespace

std::string gguf_scale_name(const std::string& tensor) { return module_of(tensor) + ".scale"; }

std::vector<std::int64_t> gguf_shape(const Piece& piece, const ModelConfig& model) {
  const auto is = [&](std::string_view ending) { return piece.names.hf.ends_with(ending); };
  const Mamba2Config& mamba = model.mamba;
  if (is("mixer.A_log") || is("mixer.D")) return {mamba.heads, 1};
  if (is("mixer.norm.weight")) return {mamba.groups, mamba.inner() / mamba.groups};
  if (is("mixer.conv1d.weight")) return {mamba.conv_channels(), mamba.conv};
  return piece.shape;
}

bool gguf_has_negative_exponential(const Piece& piece) { return piece.names.hf.ends_with("mixer.A_log"); }

std::int64_t gguf_source_row(const Piece& piece, const ModelConfig& model, std::int64_t row) {
  if (piece.role == Role::other || family_of(model) != Family::llama) return row;
  const std::int64_t head = row / model.head_dim;
  const std::int64_t within = row % model.head_dim;
  return head * model.head_dim + within % 2 * (model.head_dim / 2) + within / 2;
}

GgufMetadata gguf_metadata(const ModelConfig& model, Family family, std::int64_t context, bool has_nvfp4) {
  constexpr std::uint32_t kMostlyNvfp4 = 39;
  constexpr std::uint32_t kMostlyBf16 = 32;
  const std::string prefix = architecture(family) + ".";
  const std::int64_t layers = has_paired_blocks(family) ? model.blocks() / 2 : model.blocks();
  GgufMetadata metadata = {
      {"general.architecture", architecture(family)},
      {"general.type", std::string("model")},
      {"general.name", model.name},
      {"general.file_type", has_nvfp4 ? kMostlyNvfp4 : kMostlyBf16},
      {"general.quantization_version", std::uint32_t{2}},
      {prefix + "block_count", u32(layers)},
      {prefix + "context_length", u32(context)},
      {prefix + "embedding_length", u32(model.hidden)},
      {prefix + "vocab_size", u32(model.vocab)},
      {prefix + "attention.head_count", u32(model.heads)},
      {prefix + "attention.key_length", u32(model.head_dim)},
      {prefix + "attention.value_length", u32(model.head_dim)},
      {prefix + "attention.layer_norm_rms_epsilon", model.norm_epsilon},
  };
  if (has_paired_blocks(family))
    add_llama(metadata, model, prefix);
  else
    add_nemotron_h(metadata, model);
  return metadata;
}

std::vector<float> gguf_rope_factors(const ModelConfig& model) {
  if (!model.rope || !model.rope->scaling) return {};
  const std::vector<float> plain = rope_frequencies(model.head_dim, model.rope->theta, nullptr);
  std::vector<float> factors = rope_frequencies(model.head_dim, model.rope->theta, &*model.rope->scaling);
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = plain[i] / factors[i];
  return factors;
}

ModelConfig read_gguf_model_config(const GgufHeader& header) {
  const auto* kind = header.find<std::string>("general.architecture");
  TETRAD_CHECK(kind != nullptr && std::ranges::find(kArchitectures, *kind) != kArchitectures.end(),
               "{}: the architecture {} is not supported: only llama, qwen3 and nemotron_h are", header.where,
               kind == nullptr ? "(none)" : quoted_name(*kind));
  const Metadata metadata(header, *kind);
  constexpr std::int64_t kMaxLayers = 2048;
  const std::int64_t layers = metadata.whole("block_count");
  TETRAD_CHECK(layers >= 1 && layers <= kMaxLayers, "{}: block_count is {}: it must be from 1 to {}",
               header.where, layers, kMaxLayers);
  ModelConfig model;
  model.hidden = metadata.whole("embedding_length");
  model.heads = metadata.whole("attention.head_count");
  model.norm_epsilon = metadata.get<float>("attention.layer_norm_rms_epsilon");
  const auto* key_length = metadata.find<std::uint32_t>("attention.key_length");
  model.head_dim = key_length != nullptr ? std::int64_t{*key_length}
                   : model.heads > 0     ? model.hidden / model.heads
                                         : 0;
  model.tied = header.find_tensor("output.weight") == nullptr;
  model.qk_norm = *kind == architecture(Family::qwen3);
  if (*kind == architecture(Family::nemotron_h))
    read_nemotron_h(model, layers, metadata);
  else
    read_llama(model, layers, metadata);
  const GgufTensor* embedding = header.find_tensor("token_embd.weight");
  TETRAD_CHECK(embedding != nullptr && embedding->shape.size() == 2,
               "{}: token_embd.weight is missing or not a matrix: export the file again", header.where);
  model.vocab = embedding->shape[0];
  const auto* name = header.find<std::string>("general.name");
  if (name != nullptr && !name->empty() && name->size() <= kMaxName && is_printable(*name))
    model.name = *name;
  model.text = read_text_config(metadata, model.vocab);
  try {
    validate(model);
  } catch (const Error& error) {
    fail("{}: {}", header.where, error.what());
  }
  return model;
}

}  // namespace tetrad
