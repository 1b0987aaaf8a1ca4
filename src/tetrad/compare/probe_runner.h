// SPDX-License-Identifier: Apache-2.0
#pragma once
// The probes of all arms, after their runs.

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tetrad/compare/probe_results.h"
#include "tetrad/compare/trials.h"
#include "tetrad/eval/checks.h"

namespace tetrad {

/// By arm: what was measured before.
std::vector<ArmProbes> probes_so_far(const Comparison& comparison, const std::filesystem::path& folder);

/// Measures what is wanted (gradients, losses, recovery, checks) and was not measured before, of the first
/// run of each arm that has a checkpoint, and keeps it in the folder. False: stopped by a signal. `probes`
/// are those of the first rank, which alone makes the checks.
bool run_probes(const Comparison& comparison, const std::filesystem::path& folder,
                const std::set<std::string>& wanted, const ChecksConfig& checks, const RunContext& context,
                std::vector<ArmProbes>& probes);

}  // namespace tetrad
