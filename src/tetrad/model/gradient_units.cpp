// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/gradient_units.h"

#include <algorithm>

#include "tetrad/model/parameter_table.h"

namespace tetrad {

std::vector<GradientUnit> units_of_backward_pass(const ModelConfig& config) {
  const auto blocks = static_cast<std::size_t>(config.blocks());
  std::vector<GradientUnit> units(blocks + 2);
  std::size_t index = 0;
  for (const ParameterSpec& spec : model_parameters(config)) {
    const std::size_t unit = spec.block >= 0                   ? blocks - static_cast<std::size_t>(spec.block)
                             : spec.name == "embedding.weight" ? blocks + 1
                                                               : 0;
    units[unit].push_back(index++);
  }
  return units;
}

std::size_t gradient_bytes(std::int64_t elements) {
  constexpr std::size_t kAlignment = 256;
  const auto bytes = static_cast<std::size_t>(elements) * sizeof(float);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

GradientTurns gradient_turns(const ModelConfig& config, const std::vector<GradientUnit>& units,
                             std::span<const std::int64_t> elements) {
  constexpr std::size_t kTurns = 2;
  GradientTurns turns;
  turns.bytes.resize(kTurns + 1);
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    // The head that is the embedding has a gradient from the beginning of the backward pass to its end.
    const bool stays = config.tied && unit + 1 == units.size();
    const std::size_t memory = stays ? kTurns : unit % kTurns;
    std::size_t bytes = 0;
    for (const std::size_t parameter : units[unit]) bytes += gradient_bytes(elements[parameter]);
    turns.bytes[memory] = std::max(turns.bytes[memory], bytes);
    turns.memory_of.push_back(memory);
  }
  return turns;
}

}  // namespace tetrad
