// SPDX-License-Identifier: Apache-2.0
#include "tetrad/recipe/resolve.h"

#include <algorithm>

#include "tetrad/recipe/recipe.h"

namespace tetrad {
namespace {

/// A recipe without any setting beside its name, but for MS-EDEN, which brings others along.
PrecisionConfig plain(const std::string& recipe, bool eden = false) {
  PrecisionConfig config;
  config.recipe = recipe;
  if (eden) config.scale.backward = "eden";
  return config;
}

/// How that treats its layers.
LinearPrecision plain_precision(const std::string& recipe, bool eden = false) {
  PrecisionConfig config = plain(recipe, eden);
  config.high_precision.first = config.high_precision.last = 0;
  return Recipe(config, 1).at({}, 0);
}

/// A recipe's choices of everything that it may choose.
PrecisionConfig choices_of(const std::string& recipe, std::int64_t blocks, bool eden) {
  PrecisionConfig choices = plain(recipe, eden);
  const Recipe unchanged(choices, blocks);
  const auto stays_high = [&](std::int64_t block) {
    return !unchanged.at({.name = {}, .block = block}, 0)[Operand::fprop_x];
  };
  std::int64_t first = 0;
  while (first < blocks && stays_high(first)) ++first;
  std::int64_t last = 0;
  while (last < blocks - first && stays_high(blocks - 1 - last)) ++last;
  if (first < blocks) {  // else it cannot be told which are which
    choices.high_precision.first = first;
    choices.high_precision.last = last;
  }

  const LinearPrecision precision = plain_precision(recipe, eden);
  const auto is_stochastic = [&](Operand operand) {
    return precision[operand]->rounding != Rounding::nearest;
  };
  choices.sr.emplace();
  if (is_stochastic(Operand::dgrad_dy)) choices.sr->emplace_back("gradients");
  if (is_stochastic(Operand::fprop_x)) choices.sr->emplace_back("activations");
  if (is_stochastic(Operand::fprop_w)) choices.sr->emplace_back("weights");
  choices.sr_hardware = false;
  choices.weights_2d = precision[Operand::fprop_w]->block.rows > 1;
  const auto scale_of = [&](Operand operand) {
    return std::string(name_of(precision[operand]->scaling, precision[operand]->format));
  };
  if (const Format format = precision[Operand::fprop_x]->format; format == Format::nvfp4) {
    choices.scale.forward = scale_of(Operand::fprop_x);
    choices.scale.backward = scale_of(Operand::dgrad_dy);
  } else if (format == Format::mxfp4) {
    choices.scale.mxfp4 = scale_of(Operand::fprop_x);
  }
  choices.rht.gemms.emplace();
  for (const Operand operand : {Operand::fprop_x, Operand::dgrad_dy, Operand::wgrad_dy})
    if (const int size = precision[operand]->hadamard; size > 0) {
      choices.rht.gemms->emplace_back(gemm_of(operand));
      choices.rht.size = size;
    }
  choices.rht.signs = precision.signs == SignSource::fresh ? "fresh" : "fixed";
  choices.source = name_of(precision.input_source);
  return choices;
}

/// The recipes that quantize, at some time of the run.
std::vector<std::string> quantizing_recipes(const PrecisionConfig& config) {
  std::vector<std::string> names = {config.recipe};
  for (const PrecisionSwitch& change : config.schedule)
    for (const auto& name : {change.forward, change.backward})
      if (name) names.push_back(*name);
  std::ranges::sort(names);
  const auto repeated = std::ranges::unique(names);
  names.erase(repeated.begin(), repeated.end());
  std::erase_if(names, [](const std::string& name) { return !plain_precision(name)[Operand::fprop_x]; });
  return names;
}

}  // namespace

PrecisionConfig resolved(PrecisionConfig config, std::int64_t blocks) {
  std::vector<PrecisionConfig> choices;
  const bool eden = config.scale.backward == "eden";
  for (const std::string& name : quantizing_recipes(config))
    choices.push_back(choices_of(name, blocks, eden));
  const auto take = [&](auto&& member) {
    auto& value = member(config);
    if (value || choices.empty()) return;
    const auto& chosen = member(choices.front());
    if (std::ranges::all_of(choices, [&](auto& other) { return member(other) == chosen; })) value = chosen;
  };
  take([](PrecisionConfig & c) -> auto& { return c.high_precision.first; });
  take([](PrecisionConfig & c) -> auto& { return c.high_precision.last; });
  take([](PrecisionConfig & c) -> auto& { return c.sr; });
  take([](PrecisionConfig & c) -> auto& { return c.sr_hardware; });
  take([](PrecisionConfig & c) -> auto& { return c.weights_2d; });
  take([](PrecisionConfig & c) -> auto& { return c.scale.forward; });
  take([](PrecisionConfig & c) -> auto& { return c.scale.backward; });
  take([](PrecisionConfig & c) -> auto& { return c.scale.mxfp4; });
  take([](PrecisionConfig & c) -> auto& { return c.rht.gemms; });
  if (!eden) take([](PrecisionConfig & c) -> auto& { return c.rht.size; });  // which varies with the layer
  take([](PrecisionConfig & c) -> auto& { return c.rht.signs; });
  if (eden) take([](PrecisionConfig & c) -> auto& { return c.source; });

  std::string forward = config.recipe;
  std::string backward = config.recipe;
  for (PrecisionSwitch& change : config.schedule) {
    change.forward = forward = change.forward.value_or(forward);
    change.backward = backward = change.backward.value_or(backward);
  }
  return config;
}

}  // namespace tetrad
