// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models by name.

#include <span>
#include <string_view>

#include "tetrad/model/config.h"

namespace tetrad {

/// All presets, the small ones first. A preset's name is its ModelConfig::name.
std::span<const ModelConfig> presets();

/// nullptr if there is no such preset.
const ModelConfig* find_preset(std::string_view name);

}  // namespace tetrad
