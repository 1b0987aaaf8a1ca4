// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/checkpoint_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tetrad/config/config.h"
#include "tetrad/core/error.h"
#include "tetrad/eval/loaded_model.h"

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

}  // namespace tetrad
