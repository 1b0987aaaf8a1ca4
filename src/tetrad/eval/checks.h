// SPDX-License-Identifier: Apache-2.0
#pragma once
// All checks that a model and its data allow.

#include <cstdint>
#include <string>
#include <vector>

#include "tetrad/eval/choices.h"
#include "tetrad/eval/loaded_model.h"

namespace tetrad {

struct ChecksConfig {
  std::vector<Quiz> choices;
  std::int64_t sequences = 32;     //!< how many of each source's held-out tokens are used
  std::int64_t recall_trials = 8;  //!< texts with a fact in them, of each length and place
};

/// Token files with the names that results are told under.
using NamedFiles = std::vector<std::pair<std::string, std::string>>;

/// What a run held out, by source.
NamedFiles heldout_files(const Config& config);

std::vector<CheckResult> run_checks(LoadedModel& model, const NamedFiles& heldout,
                                    const ChecksConfig& config);

}  // namespace tetrad
