// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checkpoints of a run: when one is due, and one at a time that is written beside the next steps. Rank 0
// writes it; the others know what came of it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "tetrad/checkpoint/checkpoint_writer.h"
#include "tetrad/core/error.h"
#include "tetrad/ops/communicator.h"
#include "tetrad/train/config.h"
#include "tetrad/train/metrics.h"
#include "tetrad/train/run_log.h"

namespace tetrad {

/// How many checkpoints are on the disk at once, at most: the newest, one that is being written, the last of
/// the schedule, the best, and those that stay for good.
std::int64_t most_checkpoints(const TrainConfig& config);

class RunSaver {
 public:
  RunSaver(std::filesystem::path run, const TrainConfig& config, Communicator& ranks, RunLog& log);

  // All ranks call these:

  /// Begins to write a checkpoint, once the one before it is finished; `metrics` are on the disk then. Each
  /// rank makes contents, of which only those of rank 0 are written. Throws Error.
  void start(std::int64_t step, Metrics& metrics, const std::function<CheckpointContents()>& contents,
             CheckpointStore::Stays stays);

  /// Waits for the checkpoint that is being written, if any, and says what came of it. Returns its step;
  /// nothing: there was none, or it failed, which is an Error with `must_succeed`.
  std::optional<std::int64_t> finish(Metrics& metrics, bool must_succeed = false);

  /// The newest good checkpoint up to step `limit`, while nothing is being written. Those that rank 0 found
  /// to be damaged are among its `problems`.
  std::optional<FoundCheckpoint> newest(std::vector<CheckpointProblem>& problems,
                                        std::int64_t limit = std::numeric_limits<std::int64_t>::max());

  /// Before weights or moments change: the checkpoint that is being written may not have read them yet.
  void wait_until_read();

  // Each for itself:

  /// Whether finish() has something to say and need not wait for it.
  bool is_done() const { return writer_ && writer_->is_done(); }

  /// The state of this step is on the disk already.
  bool has(std::int64_t step) const { return saved_step_ == step; }
  void found(std::int64_t step) { saved_step_ = step; }
  void forget() { saved_step_ = -1; }

  /// Whether train.checkpoint.minutes have passed since the last one was begun, or since restart_clock().
  bool is_time() const;
  void restart_clock() { begun_at_ = steady_seconds(); }

  /// How long the last one took.
  double seconds() const { return seconds_; }

  void say_failed(std::int64_t step, const Error& error);

 private:
  struct Saving {
    std::int64_t step = 0;
    CheckpointContents kept = {};  //!< where another rank writes
    bool is_read = false;          //!< by the one that writes, if it reads from this rank
    double waited = 0;             //!< seconds that training has waited for it
  };

  void say_written(const WrittenCheckpoint& written, const Saving& saving, Metrics& metrics);
  /// Says so if the disk will have no room for the checkpoints to come, each of so many bytes.
  void forecast_space(std::uint64_t bytes);

  std::filesystem::path run_;
  TrainConfig config_;
  Communicator& ranks_;
  RunLog& log_;
  std::unique_ptr<CheckpointWriter> writer_;  //!< null: another rank writes
  std::optional<Saving> saving_;
  std::int64_t saved_step_ = -1;  //!< of the newest checkpoint that this process wrote or read
  double begun_at_ = 0;
  double seconds_ = 0;
  bool has_forecast_ = false;
};

}  // namespace tetrad
