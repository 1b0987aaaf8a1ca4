// SPDX-License-Identifier: Apache-2.0
#pragma once
// Trains the trials of a comparison one after another. Each is a run like any other, in a folder of its own,
// so a comparison that was killed goes on where it was. All ranks train each of them together; what the files
// say, and so what is to be done, the first one reads for all.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "tetrad/compare/machine.h"
#include "tetrad/compare/trials.h"
#include "tetrad/core/display.h"
#include "tetrad/ops/backend.h"
#include "tetrad/ops/communicator.h"
#include "tetrad/train/signals.h"
#include "tetrad/train/trainer.h"

namespace tetrad {

/// What every run of a comparison has in common.
struct RunContext {
  std::string build;      //!< id of this program
  nlohmann::json origin;  //!< describe_origin()
  Backend& backend;
  Communicator& ranks;
  const StopSignals& signals;
  Display& display;

  bool is_first() const { return ranks.rank() == 0; }
  /// Whether the first rank finds it so.
  bool first_finds(const std::function<bool()>& question) const;
};

struct RunStyle {
  std::function<std::string()> prefix;     //!< before every message; empty: messages go to the log alone
  bool saves_ends = true;                  //!< false: only checkpoints that the configuration asks for
  std::int64_t stop_after = 0;             //!< not 0: a trunk, which ends there
  std::optional<BranchPoint> branch = {};  //!< what the run goes on from, if it does not begin by itself
};

/// Trains in a folder of its own, from its newest checkpoint if it began before. Throws Error (bad input) if
/// it began with another configuration.
Ending train_in(const std::filesystem::path& folder, Config config, const RunStyle& style,
                const RunContext& context);

struct RunnerOptions {
  bool keep_checkpoints = true;  //!< false: only one for each of the arms below is made, and stays
  std::size_t probed = 0;        //!< arms, from the first, of which a last checkpoint is needed afterwards
  std::function<Machine()>
      describe_machine;                    //!< called once, if there is anything to train, on the first rank
  std::function<void()> after_trial = {};  //!< on the first rank
};

/// "finished" or "diverged"; empty for a trial that has not ended.
std::string ending_of(const std::filesystem::path& trial_folder);

/// The index of the arm's first trial that has ended and has a checkpoint: others may be gone, or on another
/// machine.
std::optional<std::size_t> trial_with_checkpoint(const Comparison& comparison,
                                                 const std::filesystem::path& folder, std::size_t arm);

/// Seconds until all runs have ended, if a step takes `each`: the present run, of `steps`, has taken `spent`,
/// and those to come have `later` steps. A run that takes longer than others is about to end.
double remaining_seconds(double each, double spent, std::int64_t steps, std::int64_t later);

/// Trains what has not ended, each trunk before the trials that go on from it. False: stopped by a signal.
bool run_trials(const Comparison& comparison, const std::filesystem::path& folder,
                const RunnerOptions& options, const RunContext& context);

}  // namespace tetrad
