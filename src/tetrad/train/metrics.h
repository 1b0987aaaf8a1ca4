// SPDX-License-Identifier: Apache-2.0
#pragma once
// A run's figures: metrics.jsonl is the truth, TensorBoard's event file lies beside it.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/checkpoint/branch_point.h"
#include "tetrad/io/metrics_log.h"
#include "tetrad/io/tensorboard.h"
#include "tetrad/model/pass.h"

namespace tetrad {

struct StepMetrics {
  std::int64_t step = 0;
  std::int64_t tokens = 0;  //!< trained on so far
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double tokens_per_s = 0;
  double tflops = 0;
  double seconds = 0;  //!< duration of this step
  std::int64_t memory_bytes = 0;
  std::optional<double> joules;       //!< energy of this step, where the hardware reports it
  std::optional<double> device_busy;  //!< share of the time, where the hardware says
  bool skipped = false;
  // What comes next; not in the files:
  std::int64_t phase = 0;         //!< phase of the data
  std::string forward, backward;  //!< recipes
};

struct EvalMetrics {
  std::int64_t step = 0;
  std::int64_t tokens = 0;
  std::string source;
  double loss = 0;
  std::optional<double> bits_per_byte;   //!< where the number of bytes is known
  std::optional<double> excess_nats;     //!< over the source's true entropy, where it is known
  std::optional<double> bf16_loss = {};  //!< with the forward pass in BF16, where that is another
};

struct HealthEvent {
  std::int64_t step = 0;
  std::string what;
  std::string where;
  std::string action;
};

class MetricsPage;

class Metrics {
 public:
  /// `last_step`: what comes after it in the files is from a run that was killed. What is written to the
  /// files is also shown on `page`, unless that is null.
  /// A disk that is full does not stop the run: lines wait in memory until there is room, and `warn` is told.
  Metrics(const std::filesystem::path& folder, std::int64_t last_step, MetricsPage* page,
          std::function<void(const std::string&)> warn);
  /// Of a rank that leaves all of it to the first: nothing is written.
  Metrics() = default;

  void add(const StepMetrics& metrics);
  void add(const EvalMetrics& metrics);
  void add(const HealthEvent& event);
  /// Without `seconds`: nobody knows how long it took.
  void add_checkpoint(std::int64_t step, const std::string& path, std::optional<double> seconds,
                      std::uint64_t bytes);
  /// The run goes on from a checkpoint, which is on the disk: its line is added if a kill came before it.
  void resume_from(std::int64_t step, const std::string& checkpoint, std::uint64_t bytes);
  void add(std::int64_t step, const std::vector<OperandStats>& stats);
  void add_branch(const BranchPoint& from);
  void add_resume(std::int64_t step, const std::string& build);
  /// From `step` on something is not what it was: a setting, the precision, the data.
  void add_change(std::int64_t step, const std::string& what, const std::string& before,
                  const std::string& after);
  /// The resolved configuration, for TensorBoard.
  void show_config(const std::string& yaml);

  /// Before a checkpoint is written: the lines so far are then on the disk. Throws Error (failure) if they
  /// cannot be.
  void sync();
  void cut_after(std::int64_t step);

 private:
  struct Line {
    std::int64_t step;
    std::string text;
  };

  void append(nlohmann::json line);  //!< with the time of day
  void write_waiting();
  /// TensorBoard's file is a picture of the lines: without it nothing is lost.
  void draw(const std::string& tag, std::int64_t step, double value);
  void draw_text(const std::string& tag, std::int64_t step, const std::string& text);
  template <typename Draw>
  void try_to(const Draw& draw);

  std::function<void(const std::string&)> warn_;
  std::deque<Line> waiting_;
  bool log_fails_ = false;
  bool events_fail_ = false;
  struct Files {
    MetricsLog log;
    TensorBoardWriter events;
  };
  std::unique_ptr<Files> files_;  //!< null: nothing is written
  MetricsPage* page_ = nullptr;
};

}  // namespace tetrad
