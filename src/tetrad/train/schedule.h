// SPDX-License-Identifier: Apache-2.0
#pragma once
// The learning rate over a run.

#include <cstdint>

#include "tetrad/train/config.h"

namespace tetrad {

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
