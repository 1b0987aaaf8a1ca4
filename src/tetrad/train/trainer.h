// SPDX-License-Identifier: Apache-2.0
#pragma once
// The training loop: batches in, optimizer steps, and on the way evaluation, checkpoints, metrics and a watch
// on the run's health. The same configuration gives the same weights, to the bit, however often it is
// interrupted.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/checkpoint/checkpoint_store.h"
#include "tetrad/checkpoint/snapshot.h"
#include "tetrad/data/dataset.h"
#include "tetrad/model/decoder.h"
#include "tetrad/model/estimate.h"
#include "tetrad/optim/adamw_optimizer.h"
#include "tetrad/recipe/recipe.h"
#include "tetrad/train/config.h"
#include "tetrad/train/health.h"
#include "tetrad/train/metrics.h"
#include "tetrad/train/run_folder.h"
#include "tetrad/train/run_log.h"
#include "tetrad/train/signals.h"

namespace tetrad {

enum class Ending : std::uint8_t { finished, stopped_by_signal, diverged };

/// Steps of a run, from its tokens if that is how it was said.
std::int64_t step_count(const TrainConfig& config);

/// What decides about the memory of a run.
MemoryCase memory_case(const Config& config);

/// The data of a run, checked: opening it reads every token once.
Dataset open_dataset(Threads& threads, const Config& config);

class Trainer {
 public:
  /// `resolved` is the text of the configuration, `build` the id of this program.
  Trainer(const Config& config, Dataset dataset, std::string resolved, std::string build,
          const RunFolder& folder, Backend& backend, RunLog& log);

  /// Shows the run's figures there from now on; before start() or resume().
  void show_on(MetricsPage& page) { page_ = &page; }

  /// Random weights, or those of train.from, and a checkpoint of them, so that there is always something to
  /// resume from.
  void start();

  /// Goes on from the newest good checkpoint. Throws Error (no_checkpoint).
  void resume();

  Ending run(const StopSignals& signals);

  /// No checkpoint of the beginning and none of the end: only those that the configuration asks for in
  /// between. For a run of which only the metrics matter.
  void leave_out_ends() { saves_ends_ = false; }

  /// The last evaluation, by source.
  const std::vector<EvalMetrics>& evaluations() const { return evaluations_; }

 private:
  struct StepOutcome {
    double loss = 0;
    double grad_norm = 0;
    double learning_rate = 0;
    std::vector<OperandStats> stats;
    /// If the step must not be applied: what is wrong, and where.
    std::optional<HealthEvent> fault;
    bool interrupted = false;  //!< by a signal, between two microbatches
  };

  void take_weights(const std::filesystem::path& from);
  StepOutcome compute_gradients(const StopSignals& signals);
  void open_metrics(std::int64_t last_step);
  std::optional<HealthEvent> find_fault(const Pass& pass, const StepOutcome& outcome,
                                        const AdamWOptimizer::GradientReport& report) const;
  /// Does what the policy says. Returns whether the run goes on.
  bool handle_fault(StepOutcome& outcome, const nlohmann::json& cursors_before);
  void roll_back(HealthEvent event);
  void apply(const StepOutcome& outcome);
  void report(const StepOutcome& outcome, double seconds);
  void evaluate();
  /// A failure is reported and the run goes on, unless `must_succeed`.
  void save(bool must_succeed);
  void load(const FoundCheckpoint& checkpoint);
  /// Throws Error unless the checkpoint is this run's, with its settings and its data.
  void check_is_ours(const std::filesystem::path& checkpoint) const;
  std::optional<FoundCheckpoint> newest_checkpoint();
  Pass make_pass(std::int64_t microbatch) const;
  std::int64_t tokens_per_step() const { return config_.train.batch * config_.train.sequence; }

  Config config_;
  SnapshotTexts texts_;
  std::filesystem::path folder_;
  Backend& backend_;
  RunLog& log_;
  std::int64_t steps_;
  std::int64_t microbatch_;  //!< sequences
  Recipe recipe_;
  Dataset dataset_;
  Decoder decoder_;
  AdamWOptimizer optimizer_;
  CheckpointStore store_;
  LossWatch watch_;
  RunState state_;
  std::int64_t rollbacks_ = 0;         //!< to the newest checkpoint
  std::int64_t rollback_samples_ = 0;  //!< that those rollbacks leave out
  bool saves_ends_ = true;
  std::unique_ptr<Metrics> metrics_;
  MetricsPage* page_ = nullptr;
  std::vector<EvalMetrics> evaluations_;
  std::optional<double> energy_;  //!< the meter after the last step
  double smoothed_seconds_ = 0;   //!< per step, for the remaining time
  double save_seconds_ = 0;       //!< that the last checkpoint took
  std::vector<std::int32_t> inputs_, targets_;
  std::vector<std::int32_t> document_starts_;  //!< empty: documents are not masked
  std::vector<float> losses_;
};

}  // namespace tetrad
