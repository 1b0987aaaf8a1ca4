// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tetrad/config/config.h"

namespace tetrad::bench {

/// What the configuration says of its precision is about recipes other than bf16, which they stand beside.
inline Config with_recipe(Config config, const std::string& recipe) {
  if (recipe == "bf16") config.precision = {};
  config.precision.recipe = recipe;
  return config;
}

}  // namespace tetrad::bench
