// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a configuration leaves to its recipe, said.

#include "tetrad/recipe/config.h"

namespace tetrad {

/// The same precision with the recipe's own choices written out, for the record. It is no configuration to
/// start from: with another recipe, these choices would be others. What nothing depends on in a run (all is
/// BF16), or what the recipes of a schedule choose differently, stays open.
PrecisionConfig resolved(PrecisionConfig config, std::int64_t blocks);

}  // namespace tetrad
