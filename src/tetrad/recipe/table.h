// SPDX-License-Identifier: Apache-2.0
#pragma once
// The recipes, before the switches of a configuration.

#include <algorithm>
#include <array>
#include <optional>

#include "tetrad/core/error.h"
#include "tetrad/ops/quantize.h"
#include "tetrad/recipe/config.h"

namespace tetrad {

/// Those of the paper, and our own.
struct RecipeTable {
  std::string_view name;
  std::optional<Format> format;  //!< nothing: BF16
  BlockShape vector_block;       //!< activations and gradients
  BlockShape weight_block;
  std::int64_t wgrad_hadamard;  //!< 0 = none
  bool stochastic_gradients;
  Scaling forward_scaling, backward_scaling;
  std::int64_t high_first;  //!< blocks kept in BF16 at the start …
  double high_last;         //!< … and at the end: a number of blocks, or a fraction of them if below 1
};

inline constexpr std::array kRecipeTables = [] {
  constexpr Scaling kStandard = Scaling::standard;
  return std::array{
      RecipeTable{"bf16", std::nullopt, {}, {}, 0, false, kStandard, kStandard, 0, 0},
      RecipeTable{"fp8", Format::fp8, {1, 128}, {128, 128}, 0, false, kStandard, kStandard, 1, 2},
      RecipeTable{"mxfp4", Format::mxfp4, {1, 32}, {1, 32}, 32, true, Scaling::up, Scaling::up, 0, 0.15},
      RecipeTable{"nvfp4", Format::nvfp4, {1, 16}, {16, 16}, 16, true, kStandard, kStandard, 0, 0.15},
      RecipeTable{"tetrad", Format::nvfp4, {1, 16}, {1, 16}, 16, true, Scaling::search, kStandard, 0, 0.15}};
}();

static_assert(std::ranges::equal(kRecipeTables, kRecipeNames, {}, &RecipeTable::name));

inline const RecipeTable& find_table(std::string_view name) {
  const auto* found = std::find_if(kRecipeTables.begin(), kRecipeTables.end(),
                                   [&](const RecipeTable& t) { return t.name == name; });
  TETRAD_CHECK(found != kRecipeTables.end(), "precision: unknown recipe '{}'; valid recipes: {}", name,
               fmt::join(kRecipeNames, ", "));
  return *found;
}

}  // namespace tetrad
