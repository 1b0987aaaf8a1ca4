// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the ranks of a run share besides its steps: its folder, and a watch on each other.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>

#include "tetrad/ops/communicator.h"
#include "tetrad/parallel/watchdog.h"
#include "tetrad/train/config.h"
#include "tetrad/train/run_folder.h"

namespace tetrad {

/// run.rank_minutes. Who waits for one rank alone and then says which does so after half of it, before all
/// others say that they wait.
std::chrono::milliseconds patience_between_ranks(const RunConfig& config);

/// The first rank holds the folder, with `hold`, for all. Throws SharedError where that throws, or where
/// another rank does not see the same folder under this path.
RunFolder hold_for_all(Communicator& ranks, const std::filesystem::path& path,
                       const std::function<RunFolder()>& hold);

/// Ends the run on all ranks where one of them has waited for run.rank_minutes. `ranks` outlives it.
std::unique_ptr<Watchdog> watch_ranks(Communicator& ranks, const RunConfig& config);

}  // namespace tetrad
