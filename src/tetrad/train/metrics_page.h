// SPDX-License-Identifier: Apache-2.0
#pragma once
// The newest figures of a run as Prometheus reads them. Writing costs a lock and a copy, whoever reads.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "tetrad/train/metrics.h"

namespace tetrad {

class MetricsPage {
 public:
  /// What is true of the run from its first to its last step.
  struct Run {
    std::string model, recipe, backend, build;
    std::int64_t steps = 0;
  };

  explicit MetricsPage(Run run) : run_(std::move(run)) {}

  void add(const StepMetrics& metrics);
  void add(const EvalMetrics& metrics);
  void add(const HealthEvent& event);
  void add_checkpoint(std::int64_t step, double seconds, std::uint64_t bytes);

  /// In the text format 0.0.4. Counters begin where the run was resumed and never go back, also if the run
  /// does.
  std::string text() const;

 private:
  struct Checkpoint {
    std::int64_t step;
    double seconds;
    std::uint64_t bytes;
  };

  const Run run_;
  mutable std::mutex mutex_;  //!< guards all that follows
  std::optional<StepMetrics> last_;
  std::map<std::string, EvalMetrics> evaluations_;  //!< by source
  std::map<std::string, std::int64_t> events_;      //!< by what was done
  std::optional<Checkpoint> checkpoint_;
  std::int64_t tokens_ = 0;
  std::int64_t skipped_ = 0;
  double joules_ = 0;
};

}  // namespace tetrad
