// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "tetrad/checkpoint/checkpoint_folder.h"
#include "tetrad/config/config.h"
#include "tetrad/core/error.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/train/run_folder.h"
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

void remove_checkpoints(const fs::path& run, std::size_t keep) {
  std::size_t seen = 0;
  for (const CheckpointEntry& entry : scan_checkpoints(run / "checkpoints")) {  // the newest first
    if (entry.kind != EntryKind::checkpoint || ++seen <= keep) continue;
    std::error_code ignored;  // only room is lost
    fs::remove_all(entry.path, ignored);
  }
}

}  // namespace

Ending train_in(const fs::path& folder, Config config, const RunStyle& style, const RunContext& context) {
  bool began = RunFolder::is_run(folder);
  if (began) check_same(folder, config);
  if (began && !style.saves_ends && scan_checkpoints(folder / "checkpoints").empty()) {
    fs::remove_all(folder);  // it has nothing to go on from
    began = false;
  }
  config.run.out = folder.string();
  Dataset dataset = open_dataset(context.backend.threads(), config);
  const std::string resolved = to_yaml(config);
  const RunFolder held =
      began ? RunFolder::open(folder) : RunFolder::create(folder, resolved, context.origin);
  RunLog log(folder / "log.txt", context.display);
  log.set_quiet(!style.prefix);
  if (style.prefix) log.set_prefix(style.prefix);
  Trainer trainer(config, std::move(dataset), resolved, context.build, held, context.backend, log);
  if (!style.saves_ends) trainer.leave_out_ends();
  if (began)
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
           std::ranges::any_of(scan_checkpoints(run / "checkpoints"), [](const CheckpointEntry& entry) {
             return entry.kind == EntryKind::checkpoint;
           });
  };
  const auto found = std::ranges::find_if(comparison.trials, is_one);
  if (found == comparison.trials.end()) return std::nullopt;
  return static_cast<std::size_t>(found - comparison.trials.begin());
}

double remaining_seconds(double each, double spent, std::size_t left) {
  return std::max(0.0, each - spent) + each * static_cast<double>(left - 1);
}

bool run_trials(const Comparison& comparison, const fs::path& folder, const RunnerOptions& options,
                const RunContext& context) {
  const std::size_t count = comparison.trials.size();
  const double begin = steady_seconds();
  std::size_t trained = 0;
  std::optional<Machine> machine;
  for (std::size_t i = 0; i < count; ++i) {
    const Trial& trial = comparison.trials[i];
    const fs::path run = folder / trial.folder;
    if (!ending_of(run).empty()) continue;
    const double trial_begin = steady_seconds();
    const auto prefix = [&, i, trial_begin] {
      const double each = (trial_begin - begin) / static_cast<double>(trained);
      const std::string left =
          trained == 0 ? ""
                       : fmt::format(", {} left", format_duration(remaining_seconds(
                                                      each, steady_seconds() - trial_begin, count - i)));
      return fmt::format("[{}/{} {} seed {}{}] ", i + 1, count, comparison.plan.arms[trial.arm].name,
                         trial.seed, left);
    };
    const bool is_kept = options.keep_checkpoints || (trial.arm < options.probed &&
                                                      !trial_with_checkpoint(comparison, folder, trial.arm));
    if (!machine) machine = options.describe_machine();
    const Ending ending = train_in(run, trial.config, {prefix, is_kept}, context);
    write_machine(run, *machine);
    if (ending == Ending::stopped_by_signal) return false;
    remove_checkpoints(run, is_kept ? 1 : 0);
    write_file_atomically(run / kEndingFile, ending == Ending::finished ? "finished\n" : "diverged\n");
    ++trained;
    if (options.after_trial) options.after_trial();
  }
  return true;
}

}  // namespace tetrad
