// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which settings a run keeps when it goes on.

#include <filesystem>
#include <string>

#include "tetrad/config/config.h"

namespace tetrad {

/// Whether a run may go on with another value: how it runs and how often it reports may change, what it
/// computes may not. Nor has the place of its files an influence: their contents are compared.
bool may_change_on_resume(const std::string& key);

/// Hash of all settings that may not.
std::string settings_hash(const Config& config);

/// Throws Error (bad input) that names a setting which may not change and differs. `saved_in` is where the
/// first configuration comes from.
void check_resumable(const Config& saved, const Config& now, const std::filesystem::path& saved_in);

}  // namespace tetrad
