// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tetrad {

double learning_rate(const ScheduleConfig& schedule, double peak, std::int64_t step, std::int64_t steps) {
  const double total = static_cast<double>(std::max<std::int64_t>(steps, 1));
  const double warmup = std::floor(schedule.warmup * total);
  const double done = static_cast<double>(step + 1);  // counting the step that this rate is for
  if (done <= warmup) return peak * done / warmup;
  if (schedule.kind == "constant") return peak;

  const bool cosine = schedule.kind == "cosine";
  const double fall_begins = cosine ? warmup : std::max(warmup, total - std::floor(schedule.decay * total));
  if (done <= fall_begins || total <= fall_begins) return peak;
  const double fallen = (done - fall_begins) / (total - fall_begins);
  const double remaining = cosine ? 0.5 * (1 + std::cos(std::numbers::pi * fallen)) : 1 - fallen;
  return peak * (schedule.final + (1 - schedule.final) * remaining);
}

}  // namespace tetrad
