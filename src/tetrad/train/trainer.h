// SPDX-License-Identifier: Apache-2.0
#pragma once
// The training loop: batches in, optimizer steps, and on the way evaluation, checkpoints, metrics and a watch
// on the run's health. The same configuration gives the same weights, to the bit, however often it is
// interrupted.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tetrad/checkpoint/snapshot.h"
#include "tetrad/core/error.h"
#include "tetrad/data/dataset.h"
#include "tetrad/model/decoder.h"
#include "tetrad/model/estimate.h"
#include "tetrad/model/weight_shards.h"
#include "tetrad/ops/communicator.h"
#include "tetrad/optim/adamw_optimizer.h"
#include "tetrad/optim/gradient_sum.h"
#include "tetrad/parallel/routes.h"
#include "tetrad/recipe/recipe.h"
#include "tetrad/train/config.h"
#include "tetrad/train/health.h"
#include "tetrad/train/memory_plan.h"
#include "tetrad/train/metrics.h"
#include "tetrad/train/run_folder.h"
#include "tetrad/train/run_log.h"
#include "tetrad/train/run_saver.h"
#include "tetrad/train/run_trace.h"
#include "tetrad/train/schedule.h"
#include "tetrad/train/signals.h"
#include "tetrad/train/step_record.h"

namespace tetrad {

enum class Ending : std::uint8_t { finished, stopped_by_signal, diverged };

class Trainer {
 public:
  /// `resolved` is the text of the configuration, `build` the id of this program. `ranks` train together,
  /// each with a part of every batch: all of them make the same calls. Throws Error (bad input) where the
  /// groups of a step cannot be shared among so many.
  Trainer(const Config& config, Dataset dataset, std::string resolved, std::string build,
          const RunFolder& folder, Backend& backend, Communicator& ranks, RunLog& log);

  /// Shows the run's figures there from now on; before start() or resume().
  void show_on(MetricsPage& page) { page_ = &page; }

  /// Calls this with the number of each step that begins.
  void tell_steps(std::function<void(std::int64_t)> listener) { tell_step_ = std::move(listener); }

  /// Random weights, those of train.from, or, in the folder of a branch, everything of the checkpoint that it
  /// branches off from; and a checkpoint of that, so that there is always something to resume from.
  void start();

  /// Goes on from the newest good checkpoint. With `changes_are_meant` the configuration may differ from the
  /// checkpoint's in what may_be_changed(); that is noted, and the checkpoint is written anew with it. Throws
  /// Error (no_checkpoint).
  void resume(bool changes_are_meant = false);

  Ending run(const StopSignals& signals);

  /// run() ends after this step with a checkpoint, and says "finished": a trunk, from which others go on.
  /// Nothing else is different from a run that is not stopped.
  void stop_after(std::int64_t step) { last_step_ = std::min(step, steps_); }

  /// No checkpoint of the beginning and none of the end: only those that the configuration asks for in
  /// between. For a run of which only the metrics matter.
  void leave_out_ends() { saves_ends_ = false; }

  /// The last evaluation, by source.
  const std::vector<EvalMetrics>& evaluations() const { return evaluations_; }

 private:
  struct StepOutcome {
    StepRecord record;  //!< of all ranks
    double loss = 0;
    double grad_norm = 0;
    double learning_rate = 0;
    std::vector<OperandStats> stats;
    /// If the step must not be applied: what is wrong, and where.
    std::optional<HealthEvent> fault;
    std::int64_t phase_before = 0;  //!< phase of the last sample before it
  };

  /// How a run takes over the state in a checkpoint.
  enum class GoesOn : std::uint8_t { as_it_was, changed, as_branch };

  Ending run_steps(const StopSignals& signals);
  void take_weights(const std::filesystem::path& from);
  void branch_off(const BranchPoint& from);
  void say_problems(const std::vector<CheckpointProblem>& problems);
  StepOutcome compute_gradients(const StopSignals& signals);
  /// The groups of this rank: their gradients are then summed up. The samples of all are taken.
  StepRecord compute_groups(const StopSignals& signals, std::vector<OperandStats>& stats);
  /// The microbatches of a group; false if a signal came in between.
  bool compute_group(std::int64_t group, const StopSignals& signals, StepRecord& record,
                     std::vector<OperandStats>& stats);
  void open_metrics(std::int64_t last_step);
  std::optional<HealthEvent> find_fault(const StepOutcome& outcome,
                                        const AdamWOptimizer::GradientReport& report) const;
  /// Does what the policy says. Returns whether the run goes on.
  bool handle_fault(StepOutcome& outcome, const nlohmann::json& cursors_before);
  void roll_back(HealthEvent event);
  void apply(const StepOutcome& outcome);
  void report(const StepOutcome& outcome, double seconds);
  /// `last`: of the run.
  void evaluate(bool last);
  /// Whether that evaluation is made in BF16 too.
  bool evaluates_in_bf16(bool last);
  /// Whether train.checkpoint.every asks for a checkpoint of this step.
  bool is_scheduled(std::int64_t step) const;
  /// Begins to write a checkpoint, which goes on beside the next steps. With `must_succeed` it is there on
  /// return, and a failure is an Error; otherwise a failure is reported and the run goes on. A step that is
  /// saved already is not saved again.
  void save(bool must_succeed);
  /// Waits for the checkpoint that is being written, if any, and says what came of it.
  void finish_save(bool must_succeed = false);
  /// Writes the trace, if there is one, and ends it.
  void finish_trace();
  std::optional<double> heldout_loss() const;
  void load(const std::filesystem::path& checkpoint, GoesOn how = GoesOn::as_it_was);
  /// Throws Error unless the checkpoint is this run's (or of the one that it branches off from), with its
  /// settings and its data.
  void check_is_ours(const std::filesystem::path& checkpoint, GoesOn how) const;
  /// What the configuration has otherwise than the checkpoint's. Returns whether there is anything.
  bool note_changed_settings(const std::filesystem::path& checkpoint);
  /// Where the precision of the next step is another than that of the last one.
  void note_changes();
  /// The newest good one up to step `limit`.
  std::optional<FoundCheckpoint> newest_checkpoint(
      std::int64_t limit = std::numeric_limits<std::int64_t>::max());
  /// The samples of the next microbatch.
  void read_microbatch();
  Pass make_pass(std::int64_t microbatch) const;
  double progress(std::int64_t step) const { return static_cast<double>(step) / static_cast<double>(steps_); }
  std::int64_t tokens_per_step() const { return config_.train.batch * config_.train.sequence; }

  Config config_;
  SnapshotTexts texts_;
  const RunFolder& run_folder_;
  std::filesystem::path folder_;
  Backend& backend_;
  Communicator& ranks_;
  RunLog& log_;
  std::int64_t steps_;
  std::int64_t last_step_;   //!< that this process makes
  std::int64_t microbatch_;  //!< sequences
  Recipe recipe_;
  Dataset dataset_;
  GroupDeal deal_;
  Routes routes_;
  MemoryPlan plan_;
  std::unique_ptr<WeightShards> shards_;  //!< null: this rank has all weights
  Decoder decoder_;
  AdamWOptimizer optimizer_;
  SnapshotMessages messages_;
  GradientSum gradients_;
  RunSaver saver_;  //!< ends before what it reads
  LossWatch watch_;
  RunState state_;
  bool saves_ends_ = true;
  bool save_asked_ = false;           //!< of this rank, since the last checkpoint
  std::unique_ptr<Metrics> metrics_;  //!< of rank 0, and silent on the others
  std::unique_ptr<RunTrace> trace_;   //!< null: none, or no longer
  MetricsPage* page_ = nullptr;
  std::function<void(std::int64_t)> tell_step_ = [](std::int64_t) {};
  std::vector<EvalMetrics> evaluations_;
  std::optional<double> energy_;  //!< the meter after the last step
  double smoothed_seconds_ = 0;   //!< per step, for the remaining time
  std::vector<std::int32_t> inputs_, targets_;
  std::vector<std::int32_t> document_starts_;  //!< empty: documents are not masked
  std::vector<float> losses_;
};

}  // namespace tetrad
