// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a comparison is: from the command line, or from the folder in which it began.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config_arguments.h"
#include "start_ranks.h"
#include "tetrad/compare/plan.h"
#include "tetrad/compare/trials.h"

namespace tetrad::app {

struct CompareOptions {
  std::vector<std::string> arguments;  //!< configuration files and key=value, in any order
  std::string arms;
  std::string out;
  std::string resume;
  MachineOptions machine;
  RankOptions ranks;
  std::int64_t seeds = 0;
  double margin = 0;
  std::int64_t looks = 0;
  std::int64_t trunk_steps = 0;
  std::vector<std::string> branches;
  std::string primary;
  std::int64_t first_steps = 0;
  std::string against;
  std::vector<double> lr_factors;

  /// Whether anything is said that a comparison has from its beginning.
  bool redefines() const {
    return !arguments.empty() || !arms.empty() || margin > 0 || looks > 0 || trunk_steps > 0 ||
           !primary.empty() || first_steps > 0 || !lr_factors.empty();
  }
  double price = 0;
  std::vector<std::string> choices;
  bool light = false;
  std::vector<std::string> probes;  //!< empty: as it began, or everything
  bool dry_run = false;
  bool json = false;
};

inline constexpr const char* kPlanFile = "compare.yaml";
inline constexpr const char* kCommonFile = "common.yaml";
inline constexpr const char* kOriginFile = "origin.json";

struct Definition {
  ComparePlan plan;
  std::string common;  //!< the configuration that all trials share, YAML
};

/// What a comparison that began is about; nothing: none did.
std::optional<Definition> found_in(const std::filesystem::path& folder);

/// What a comparison is to be: all but the number of its seeds and trunks stays as it began.
Definition define(const CompareOptions& options, const std::filesystem::path& folder);

bool all_have_ended(const Comparison& comparison, const std::filesystem::path& folder);

/// A folder without a plan is not of a comparison, and what lies there under the names of its files not ours.
void refuse_files_of_others(const std::filesystem::path& folder);

}  // namespace tetrad::app
