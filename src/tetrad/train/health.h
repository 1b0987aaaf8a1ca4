// SPDX-License-Identifier: Apache-2.0
#pragma once
// Does the loss look as it should? Spikes stand out from the recent past; divergence is a lasting rise.

#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <utility>

#include "tetrad/train/config.h"

namespace tetrad {

class LossWatch {
 public:
  explicit LossWatch(HealthConfig config) : config_(std::move(config)) {}

  /// Robust standard deviations (1.4826 MAD) by which `loss` exceeds the median of the window before it; 0
  /// until the window is full.
  double deviation(double loss) const;
  bool is_spike(double loss) const { return deviation(loss) > config_.spike_sigma; }

  /// Takes the loss of a step that was applied into account.
  void add(double loss);

  /// The smoothed loss has been above its best by divergence_nats for divergence_steps.
  bool diverged() const { return steps_above_ >= config_.divergence_steps; }
  double smoothed() const { return smoothed_; }
  double best() const { return best_; }

  /// For checkpoints: to the bit.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  HealthConfig config_;
  std::deque<double> window_;
  double smoothed_ = 0;
  double best_ = 0;
  std::int64_t seen_ = 0;
  std::int64_t steps_above_ = 0;
};

}  // namespace tetrad
