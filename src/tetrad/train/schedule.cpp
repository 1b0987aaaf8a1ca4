// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tetrad/core/checked.h"

namespace tetrad {

namespace {

/// A part of the run in steps, from whichever way it was given.
double part_of(const RunLength& run, double fraction, std::int64_t steps, std::int64_t tokens) {
  if (steps > 0) return static_cast<double>(std::min(steps, run.steps));
  if (tokens > 0) return static_cast<double>(std::min(ceil_div(tokens, run.tokens_per_step), run.steps));
  return std::floor(fraction * static_cast<double>(run.steps));
}

}  // namespace

std::int64_t step_count(const TrainConfig& config) {
  return config.steps > 0 ? config.steps : ceil_div(config.tokens, config.batch * config.sequence);
}

double learning_rate(const ScheduleConfig& schedule, double peak, std::int64_t step, const RunLength& run) {
  const RunLength length{std::max<std::int64_t>(run.steps, 1), run.tokens_per_step};
  const double total = static_cast<double>(length.steps);
  const double warmup = part_of(length, schedule.warmup, schedule.warmup_steps, schedule.warmup_tokens);
  const double done = static_cast<double>(step + 1);  // counting the step that this rate is for
  if (done <= warmup) return peak * done / warmup;
  if (schedule.kind == "constant") return peak;

  const bool cosine = schedule.kind == "cosine";
  const double decay = part_of(length, schedule.decay, schedule.decay_steps, schedule.decay_tokens);
  const double fall_begins = cosine ? warmup : std::max(warmup, total - decay);
  if (done <= fall_begins || total <= fall_begins) return peak;
  const double fallen = (done - fall_begins) / (total - fall_begins);
  const double remaining = cosine ? 0.5 * (1 + std::cos(std::numbers::pi * fallen)) : 1 - fallen;
  return peak * (schedule.final + (1 - schedule.final) * remaining);
}

}  // namespace tetrad
