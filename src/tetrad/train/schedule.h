// SPDX-License-Identifier: Apache-2.0
#pragma once
// How long a run is, and its learning rate on the way.

#include <cstdint>

#include "tetrad/train/config.h"

namespace tetrad {

/// Steps of a run, from its tokens if that is how it was said.
std::int64_t step_count(const TrainConfig& config);

/// How long a run is.
struct RunLength {
  std::int64_t steps = 0;
  std::int64_t tokens_per_step = 1;
};

/// The learning rate of step `step` (from 0). Warm-up is linear from the first step on; wsd then stays at
/// `peak` and falls linearly over the last part of the run; cosine falls from the end of the warm-up;
/// constant stays. The last step of a falling schedule has peak * final.
double learning_rate(const ScheduleConfig& schedule, double peak, std::int64_t step, const RunLength& run);

}  // namespace tetrad
