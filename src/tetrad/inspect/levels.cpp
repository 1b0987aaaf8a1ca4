// SPDX-License-Identifier: Apache-2.0
#include "tetrad/inspect/levels.h"

#include <fmt/format.h>

#include <algorithm>

namespace tetrad {

std::string_view name_of(Level level) {
  switch (level) {
    case Level::bf16:
      return "bf16";
    case Level::fp8:
      return "fp8";
    default:
      return "quantized";
  }
}

bool has_four_bits(const LinearPrecision& precision) {
  return std::ranges::any_of(precision.operands, [](const std::optional<QuantSpec>& spec) {
    return spec && spec->format != Format::fp8;
  });
}

bool is_quantized(const LinearPrecision& precision) {
  return std::ranges::any_of(precision.operands,
                             [](const std::optional<QuantSpec>& spec) { return spec.has_value(); });
}

Level level_of(const LinearPrecision& precision, const LinearPrecision& base) {
  if (!is_quantized(precision) && is_quantized(base)) return Level::bf16;
  return !has_four_bits(precision) && has_four_bits(base) ? Level::fp8 : Level::quantized;
}

std::vector<Unit> make_units(Decoder& decoder, bool by_block) {
  std::vector<Unit> units;
  std::int64_t all = 0;
  std::size_t index = 0;
  for (const Linear* linear : decoder.linears()) {
    const LayerId id = linear->layer_id();
    const std::int64_t weights = linear->out_features() * linear->in_features();
    if (!by_block || units.empty() || units.back().block != id.block)
      units.push_back(
          {by_block ? fmt::format("blocks.{}", id.block) : linear->name(), id.block, {}, index, 0, 0});
    units.back().layers.push_back(linear->name());
    units.back().weights += weights;
    all += weights;
    ++index;
  }
  // Each of the three products takes two FLOP for a weight and token, in every layer.
  for (Unit& unit : units) unit.share = static_cast<double>(unit.weights) / static_cast<double>(all);
  return units;
}

HighPrecisionConfig keep(std::span<const Unit> layers, std::span<const Level> levels) {
  HighPrecisionConfig config{0, 0, {}, {}};
  for (std::size_t begin = 0, end = 0; begin < layers.size(); begin = end) {
    while (end < layers.size() && layers[end].block == layers[begin].block) ++end;
    const std::span<const Level> of_block = levels.subspan(begin, end - begin);
    const bool is_one = std::ranges::adjacent_find(of_block, std::ranges::not_equal_to()) == of_block.end();
    for (std::size_t i = begin; i < end; ++i) {
      if (levels[i] == Level::quantized || (is_one && i > begin)) continue;
      std::vector<std::string>& list = levels[i] == Level::bf16 ? config.match : config.fp8;
      list.push_back(is_one ? fmt::format("blocks.{}.*", layers[i].block) : layers[i].name);
    }
  }
  return config;
}

}  // namespace tetrad
