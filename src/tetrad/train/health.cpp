// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/health.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace tetrad {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

double LossWatch::deviation(double loss) const {
  constexpr double kMadToSigma = 1.4826;   // for a normal distribution
  constexpr double kSmallestSigma = 1e-3;  // a loss that hardly moves must not make every ripple a spike
  if (static_cast<std::int64_t>(window_.size()) < config_.spike_window) return 0;
  const std::vector<double> values(window_.begin(), window_.end());
  const double center = median(values);
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::abs(value - center));
  return (loss - center) / std::max(kMadToSigma * median(distances), kSmallestSigma);
}

void LossWatch::add(double loss) {
  constexpr double kSmoothing = 0.05;
  window_.push_back(loss);
  if (static_cast<std::int64_t>(window_.size()) > config_.spike_window) window_.pop_front();
  smoothed_ = seen_ == 0 ? loss : smoothed_ + kSmoothing * (loss - smoothed_);
  best_ = seen_ == 0 ? smoothed_ : std::min(best_, smoothed_);
  ++seen_;
  steps_above_ = smoothed_ > best_ + config_.divergence_nats ? steps_above_ + 1 : 0;
}

nlohmann::json LossWatch::state() const {
  return {{"window", window_},
          {"smoothed", smoothed_},
          {"best", best_},
          {"seen", seen_},
          {"steps_above", steps_above_}};
}

void LossWatch::restore(const nlohmann::json& state) {
  window_ = state.at("window").get<std::deque<double>>();
  smoothed_ = state.at("smoothed").get<double>();
  best_ = state.at("best").get<double>();
  seen_ = state.at("seen").get<std::int64_t>();
  steps_above_ = state.at("steps_above").get<std::int64_t>();
}

}  // namespace tetrad
