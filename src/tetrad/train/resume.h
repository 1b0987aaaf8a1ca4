// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which settings a run keeps when it goes on.

#include <filesystem>
#include <string>
#include <vector>

#include "tetrad/checkpoint/branch_point.h"
#include "tetrad/config/config.h"

namespace tetrad {

/// Whether a run may go on with another value: how it runs and how often it reports may change, what it
/// computes may not. Nor has the place of its files an influence: their contents are compared.
bool may_change_on_resume(const std::string& key);

/// Hash of all settings that may not.
std::string settings_hash(const Config& config);

/// Whether a run may go on with another value if somebody says so: its length, how it learns, the mix of its
/// data and its precision. It is then another run from there on.
bool may_be_changed(const std::string& key);

struct SettingChange {
  std::string key;
  std::string before;
  std::string after;
};

/// What differs of the settings that decide what a run computes.
std::vector<SettingChange> changed_settings(Config saved, const Config& now);

/// Throws Error (bad input) that names a setting which may not change and differs. `saved_in` is where the
/// first configuration comes from; `changes_are_meant`: what may_be_changed() may differ.
void check_resumable(const Config& saved, const Config& now, const std::filesystem::path& saved_in,
                     bool changes_are_meant);

/// Throws Error (bad input) if a branch from there would have no step to make.
void check_branch(const BranchPoint& from, const Config& config);

}  // namespace tetrad
