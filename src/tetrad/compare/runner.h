#pragma once
// Trains the trials of a comparison one after another. Each is a run like any other, in a folder of its own,
// so a comparison that was killed goes on where it was.

#include <filesystem>
#include <functional>
#include <string>

#include "tetrad/compare/trials.h"
#include "tetrad/ops/backend.h"
#include "tetrad/train/signals.h"

namespace tetrad {

struct RunnerOptions {
  std::string build;             //!< id of this program
  bool keep_checkpoints = true;  //!< false: the last of the first trial of each arm alone stays
  std::function<void()> after_trial = {};
};

/// "finished" or "diverged"; empty for a trial that has not ended.
std::string ending_of(const std::filesystem::path& trial_folder);

/// Trains what has not ended. False: stopped by a signal.
bool run_trials(const Comparison& comparison, const std::filesystem::path& folder,
                const RunnerOptions& options, Backend& backend, const StopSignals& signals);

}  // namespace tetrad
