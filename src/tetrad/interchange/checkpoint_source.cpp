// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/checkpoint_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tetrad/config/config.h"
#include "tetrad/core/error.h"
#include "tetrad/eval/loaded_model.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad {
namespace {

template <typename... Args>
[[noreturn]] void unusable(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), ExitCode::no_checkpoint);
}

Config read_config(const std::filesystem::path& checkpoint) {
  const std::vector<std::string> files = {(checkpoint / "config.yaml").string()};
  return load_config(files, {});
}

}  // namespace

CheckpointSource::CheckpointSource(const std::filesystem::path& path, Display* display)
    : checkpoint_(find_checkpoint(path, display)),
      config_(read_config(checkpoint_.path())),
      family_(family_of(config_.model)),
      parameters_(tensor_map(config_.model, family_)),
      weights_(std::make_unique<SafetensorsFile>(checkpoint_.path() / "model.safetensors")),
      tokenizer_(tokenizer_of_checkpoint(checkpoint_.path())) {
  validate(config_.model);
}

std::vector<float> CheckpointSource::values(const MappedParameter& parameter) const {
  const std::string file = (path() / "model.safetensors").string();
  const TensorInfo* info = weights_->find(parameter.name);
  if (info == nullptr) unusable("{} has no tensor {}: it belongs to another model", file, parameter.name);
  if (info->dtype != DType::f32 || info->shape != parameter.shape)
    unusable("{}: {} is {} [{}], the model needs F32 [{}]", file, parameter.name, name_of(info->dtype),
             fmt::join(info->shape, ", "), fmt::join(parameter.shape, ", "));
  std::vector<float> values(static_cast<std::size_t>(element_count(parameter.shape)));
  const std::span<const std::byte> bytes = weights_->bytes(*info);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (bad != values.end())
    unusable("{}: {} holds a value that is not finite (element {})", file, parameter.name,
             bad - values.begin());
  return values;
}

std::string CheckpointSource::tokenizer_json() const {
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(tokenizer_.get()))
    return to_tokenizer_json(bpe->definition());
  return tokenizer_ != nullptr ? to_tokenizer_json(byte_definition()) : std::string();
}

std::int64_t CheckpointSource::context() const {
  const std::int64_t trained = config_.train.sequence;
  if (config_.model.text.context > 0) return std::max(trained, config_.model.text.context);
  if (!config_.model.rope || !config_.model.rope->scaling) return trained;
  const RopeScaling& scaling = *config_.model.rope->scaling;
  return std::max(trained, std::int64_t{std::llround(scaling.factor * double(scaling.original_context))});
}

std::optional<std::int32_t> CheckpointSource::begin_of_text() const {
  if (const auto& begin = config_.model.text.begin) return static_cast<std::int32_t>(*begin);
  if (tokenizer_ == nullptr || tokenizer_->prefix().size() != 1) return std::nullopt;
  return tokenizer_->prefix().front();
}

std::optional<std::int32_t> CheckpointSource::end_of_text() const {
  if (const auto& end = config_.model.text.end) return static_cast<std::int32_t>(*end);
  const std::vector<std::int32_t> ends = ends_of_text();
  return ends.empty() ? std::nullopt : std::optional(ends.front());
}

std::vector<std::int32_t> CheckpointSource::ends_of_text() const {
  const std::vector<std::int64_t>& ends = config_.model.text.ends;
  if (!ends.empty()) return {ends.begin(), ends.end()};
  const auto separator = tokenizer_ != nullptr ? tokenizer_->end_of_document() : std::nullopt;
  return separator ? std::vector{*separator} : std::vector<std::int32_t>{};
}

}  // namespace tetrad
