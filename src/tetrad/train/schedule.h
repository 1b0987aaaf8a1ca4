// SPDX-License-Identifier: Apache-2.0
#pragma once
// The learning rate over a run.

#include <cstdint>

#include "tetrad/train/config.h"

namespace tetrad {

/// The learning rate of step `step` (from 0) out of `steps`. Warm-up is linear from the first step on; wsd
/// then stays at `peak` and falls linearly over the last `decay` of the run; cosine falls from the end of the
/// warm-up; constant stays. The last step of a falling schedule has peak * final.
double learning_rate(const ScheduleConfig& schedule, double peak, std::int64_t step, std::int64_t steps);

}  // namespace tetrad
