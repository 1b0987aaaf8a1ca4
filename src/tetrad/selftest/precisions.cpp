// SPDX-License-Identifier: Apache-2.0
#include "tetrad/selftest/precisions.h"

#include "tetrad/recipe/recipe.h"

namespace tetrad::selftest {

std::vector<NamedPrecision> precisions() {
  std::vector<NamedPrecision> all;
  const auto add = [&](const std::string& name, const PrecisionConfig& config) {
    constexpr std::int64_t kBlocks = 64;  // in the middle of so many no recipe keeps a layer in BF16
    const Recipe recipe(config, kBlocks);
    all.push_back({name, recipe.at({.name = "blocks.32.qkv", .block = kBlocks / 2}, 0.5)});
  };
  for (const std::string_view name : kRecipeNames) {
    PrecisionConfig config;
    config.recipe = name;
    add(config.recipe, config);
  }
  PrecisionConfig eden;
  eden.scale.backward = "eden";
  add("nvfp4 with eden", eden);
  PrecisionConfig centred;
  centred.centre = true;
  add("nvfp4 centred", centred);
  PrecisionConfig of_fprop;
  of_fprop.source = "fprop";
  add("nvfp4 of fprop", of_fprop);
  return all;
}

}  // namespace tetrad::selftest
