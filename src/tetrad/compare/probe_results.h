// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the probes of an arm found, and a file that keeps it: a comparison that goes on, or grows, does not
// measure it again.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/compare/probes.h"
#include "tetrad/eval/check.h"

namespace tetrad {

/// Results of one arm; what was not measured is empty.
struct ArmProbes {
  std::vector<GradientDistance> gradients;  //!< as compare_gradients gives them
  std::optional<LossDistance> losses;       //!< as compare_losses gives them
  std::optional<Recovery> recovery;
  std::optional<std::vector<CheckResult>> checks;  //!< checks of the arm's first run
};

/// Replaces the file.
void write_probes(const std::filesystem::path& file, const ArmProbes& probes);

/// Empty if there is no such file. Throws Error (bad input) if it is not what write_probes wrote.
ArmProbes read_probes(const std::filesystem::path& file);

}  // namespace tetrad
