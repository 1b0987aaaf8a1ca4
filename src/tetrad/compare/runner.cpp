// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "tetrad/checkpoint/checkpoint_folder.h"
#include "tetrad/config/config.h"
#include "tetrad/core/error.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/train/run_folder.h"
#include "tetrad/train/run_parts.h"
#include "tetrad/train/run_ranks.h"
#include "tetrad/train/trainer.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEndingFile = "ending";

/// What a trial that began is must be what the plan says it is.
void check_same(const fs::path& folder, const Config& config) {
  const std::vector<std::string> files = {config_of_run(folder).string()};
  Config saved = load_config(files, {});
  saved.run = config.run;
  const std::vector<std::string> keys = differences(saved, config);
  TETRAD_CHECK(keys.empty(),
               "{} was started with another {}: choose another --out, or use the original configuration",
               folder.string(), keys.empty() ? "" : keys[0]);
}

/// All but the newest `keep` and those that train.checkpoint.keep_every asks for.
void remove_checkpoints(const fs::path& run, std::size_t keep, const CheckpointConfig& config) {
  std::size_t seen = 0;
  for (const CheckpointEntry& entry : scan_checkpoints(run / "checkpoints")) {  // the newest first
    if (entry.kind != EntryKind::checkpoint || ++seen <= keep || config.stays_for_good(entry.step)) continue;
    std::error_code ignored;  // only room is lost
    fs::remove_all(entry.path, ignored);
  }
}

std::int64_t steps_of(const Trial& trial, const Comparison& comparison) {
  return step_count(trial.config.train) - comparison.trunk_steps();
}

/// The first rank's.
bool has_ended(const fs::path& run, const RunContext& context) {
  return context.first_finds([&] { return !ending_of(run).empty(); });
}

/// Where a comparison stands, in front of every line.
class Progress {
 public:
  Progress(const Comparison& comparison, const fs::path& folder) {
    const auto add = [&](const std::string& run, std::int64_t steps) {
      ++runs_;
      if (ending_of(folder / run).empty())
        later_ += steps;
      else
        ++ended_;
    };
    for (const Trunk& trunk : comparison.trunks)
      if (!trunk.given) add(trunk.folder, trunk.steps);
    for (const Trial& trial : comparison.trials) add(trial.folder, steps_of(trial, comparison));
  }

  void begin(std::string name, std::int64_t steps) {
    name_ = std::move(name);
    steps_ = steps;
    later_ -= steps;
    begin_ = steady_seconds();
  }
  void end() {
    ++ended_;
    seconds_done_ += steady_seconds() - begin_;
    steps_done_ += steps_;
  }
  std::string prefix() const {
    std::string left;
    if (steps_done_ > 0)
      left = fmt::format(", {} left",
                         format_duration(remaining_seconds(seconds_done_ / static_cast<double>(steps_done_),
                                                           steady_seconds() - begin_, steps_, later_)));
    return fmt::format("[{}/{} {}{}] ", ended_ + 1, runs_, name_, left);
  }

 private:
  std::size_t runs_ = 0, ended_ = 0;
  std::string name_;
  std::int64_t steps_ = 0;  //!< of the present run
  std::int64_t later_ = 0;  //!< of those to come
  std::int64_t steps_done_ = 0;
  double seconds_done_ = 0;
  double begin_ = 0;
};

/// Unless it is there. False: stopped by a signal.
bool train_trunk(const Trunk& trunk, const fs::path& folder, Progress& progress, const RunContext& context) {
  const fs::path run = folder / trunk.folder;
  if (trunk.given || has_ended(run, context)) return true;
  progress.begin(fmt::format("trunk seed {}", trunk.seed), trunk.steps);
  const Ending ending =
      train_in(run, trunk.config, {[&] { return progress.prefix(); }, true, trunk.steps}, context);
  if (ending == Ending::stopped_by_signal) return false;
  on_first(context.ranks, [&] {
    TETRAD_CHECK(
        ending == Ending::finished,
        "the trunk {} diverged before step {}, so no arm can go on from it: change the configuration, or "
        "shorten the trunks",
        run.string(), trunk.steps);
    remove_checkpoints(run, 1, trunk.config.train.checkpoint);
    write_file_atomically(run / kEndingFile, "finished\n");
  });
  progress.end();
  return true;
}

BranchPoint branch_point_of(const Trunk& trunk, const fs::path& folder) {
  if (trunk.given) return *trunk.given;
  std::vector<CheckpointProblem> problems;
  return branch_point(open_checkpoint(folder / trunk.folder, problems).path());
}

/// Whether there is something in the folder to go on from; what is there without any is removed.
bool can_go_on(const fs::path& folder, const Config& config, const RunStyle& style) {
  if (!RunFolder::is_run(folder)) return false;
  check_same(folder, config);
  if (style.saves_ends || !scan_checkpoints(folder / "checkpoints").empty()) return true;
  fs::remove_all(folder);
  return false;
}

/// What is left to do in the folder of a trial that was trained.
void end_trial(const Trial& trial, const fs::path& folder, const Machine& machine, Ending ending,
               const Comparison& comparison, bool keeps_checkpoint, bool keeps_trunk) {
  const fs::path run = folder / trial.folder;
  write_machine(run, machine);
  if (ending == Ending::stopped_by_signal) return;
  remove_checkpoints(run, keeps_checkpoint ? 1 : 0, trial.config.train.checkpoint);
  write_file_atomically(run / kEndingFile, ending == Ending::finished ? "finished\n" : "diverged\n");
  const bool is_last_of_pair = trial.arm + 1 == comparison.plan.arms.size();
  if (trial.trunk && is_last_of_pair && !keeps_trunk)
    if (const Trunk& trunk = comparison.trunks[*trial.trunk]; !trunk.given)
      remove_checkpoints(folder / trunk.folder, 0, trunk.config.train.checkpoint);
}

}  // namespace

bool RunContext::first_finds(const std::function<bool()>& question) const {
  bool answer = false;
  on_first(ranks, [&] { answer = question(); });
  return on_any(ranks, answer);
}

Ending train_in(const fs::path& folder, Config config, const RunStyle& style, const RunContext& context) {
  Communicator& ranks = context.ranks;
  const std::unique_ptr<Watchdog> watchdog = watch_ranks(ranks, config.run);
  config.run.out = folder.string();
  std::optional<Dataset> dataset;
  together(ranks, [&] {
    deal_groups(config, ranks.size());
    dataset.emplace(open_dataset(context.backend.threads(), config));
  });
  bool goes_on = false;
  const RunFolder held = hold_for_all(ranks, folder, [&] {
    goes_on = can_go_on(folder, config, style);
    return goes_on ? RunFolder::open(folder)
                   : RunFolder::create(folder, to_yaml(config), context.origin, style.branch);
  });
  RunLog log = context.is_first() ? RunLog(folder / "log.txt", context.display) : RunLog(context.display);
  log.set_quiet(!style.prefix || !context.is_first());
  if (style.prefix) log.set_prefix(style.prefix);
  Trainer trainer(config, std::move(*dataset), to_yaml(config), context.build, held, context.backend, ranks,
                  log);
  trainer.tell_steps([&](std::int64_t step) { watchdog->set_step(step); });
  if (!style.saves_ends) trainer.leave_out_ends();
  if (style.stop_after > 0) trainer.stop_after(style.stop_after);
  if (on_any(ranks, goes_on))
    trainer.resume();
  else
    trainer.start();
  return trainer.run(context.signals);
}

std::string ending_of(const fs::path& trial_folder) {
  std::ifstream file(trial_folder / kEndingFile);
  std::string ending;
  std::getline(file, ending);
  return ending;
}

std::optional<std::size_t> trial_with_checkpoint(const Comparison& comparison, const fs::path& folder,
                                                 std::size_t arm) {
  const auto is_one = [&](const Trial& trial) {
    const fs::path run = folder / trial.folder;
    return trial.arm == arm && !ending_of(run).empty() &&
           std::ranges::any_of(scan_checkpoints(run / "checkpoints"), [&](const CheckpointEntry& entry) {
             return entry.kind == EntryKind::checkpoint &&
                    (entry.step == step_count(trial.config.train) ||
                     !trial.config.train.checkpoint.stays_for_good(entry.step));
           });
  };
  const auto found = std::ranges::find_if(comparison.trials, is_one);
  if (found == comparison.trials.end()) return std::nullopt;
  return static_cast<std::size_t>(found - comparison.trials.begin());
}

double remaining_seconds(double each, double spent, std::int64_t steps, std::int64_t later) {
  return std::max(0.0, each * static_cast<double>(steps) - spent) + each * static_cast<double>(later);
}

bool run_trials(const Comparison& comparison, const fs::path& folder, const RunnerOptions& options,
                const RunContext& context) {
  Progress progress(comparison, folder);
  std::optional<Machine> machine;  // of the first rank
  for (const Trial& trial : comparison.trials) {
    const fs::path run = folder / trial.folder;
    if (has_ended(run, context)) continue;
    on_first(context.ranks, [&] {
      if (!machine) machine = options.describe_machine();
    });
    RunStyle style;
    if (trial.trunk) {
      const Trunk& trunk = comparison.trunks[*trial.trunk];
      if (!train_trunk(trunk, folder, progress, context)) return false;
      on_first(context.ranks, [&] { style.branch = branch_point_of(trunk, folder); });
    }
    style.saves_ends = options.keep_checkpoints || context.first_finds([&] {
      return trial.arm < options.probed && !trial_with_checkpoint(comparison, folder, trial.arm);
    });
    progress.begin(fmt::format("{} seed {}", comparison.plan.arms[trial.arm].name, trial.seed),
                   steps_of(trial, comparison));
    style.prefix = [&] { return progress.prefix(); };
    const Ending ending = train_in(run, trial.config, style, context);
    on_first(context.ranks, [&] {
      end_trial(trial, folder, *machine, ending, comparison, style.saves_ends, options.keep_checkpoints);
    });
    if (ending == Ending::stopped_by_signal) return false;
    progress.end();
    on_first(context.ranks, [&] {
      if (options.after_trial) options.after_trial();
    });
  }
  return true;
}

}  // namespace tetrad
