// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/schedule.h"

#include <gtest/gtest.h>

namespace tetrad {
namespace {

constexpr std::int64_t kSteps = 100;

double rate(const ScheduleConfig& schedule, std::int64_t step) {
  return learning_rate(schedule, 2.0, step, {kSteps, 1000});
}

TEST(Schedule, WarmUpIsLinearAndReachesThePeak) {
  for (const char* kind : {"wsd", "cosine", "constant"}) {
    const ScheduleConfig schedule{.kind = kind, .warmup = 0.1, .decay = 0.2, .final = 0.01};
    for (std::int64_t step = 0; step < 10; ++step)
      EXPECT_DOUBLE_EQ(rate(schedule, step), 2.0 * static_cast<double>(step + 1) / 10) << kind;
  }
}

TEST(Schedule, WsdStaysThenFallsToItsEnd) {
  const ScheduleConfig schedule{.kind = "wsd", .warmup = 0.1, .decay = 0.2, .final = 0.01};
  for (std::int64_t step = 9; step < 80; ++step) EXPECT_DOUBLE_EQ(rate(schedule, step), 2.0) << step;
  EXPECT_DOUBLE_EQ(rate(schedule, 89), 2.0 * (0.01 + 0.99 * 0.5));
  EXPECT_DOUBLE_EQ(rate(schedule, 99), 0.02);
  for (std::int64_t step = 80; step < 100; ++step) EXPECT_LT(rate(schedule, step), rate(schedule, step - 1));
}

TEST(Schedule, CosineFallsFromTheEndOfTheWarmUp) {
  const ScheduleConfig schedule{.kind = "cosine", .warmup = 0.2, .decay = 0, .final = 0.1};
  EXPECT_DOUBLE_EQ(rate(schedule, 19), 2.0);
  EXPECT_NEAR(rate(schedule, 59), 2.0 * (0.1 + 0.9 * 0.5), 1e-12);
  EXPECT_NEAR(rate(schedule, 99), 0.2, 1e-12);
}

TEST(Schedule, PartsMayBeStepsOrTokens) {
  const ScheduleConfig fractions{.kind = "wsd", .warmup = 0.1, .decay = 0.2, .final = 0.01};
  ScheduleConfig in_steps = fractions;
  in_steps.warmup_steps = 10;
  in_steps.decay_steps = 20;
  ScheduleConfig in_tokens = fractions;
  in_tokens.warmup_tokens = 9'500;  // a step that is begun counts
  in_tokens.decay_tokens = 20'000;
  for (ScheduleConfig* other : {&in_steps, &in_tokens}) {
    other->warmup = 0.5;  // does not count
    other->decay = 0.5;
    for (std::int64_t step = 0; step < kSteps; ++step)
      EXPECT_DOUBLE_EQ(rate(*other, step), rate(fractions, step)) << step;
  }
  in_steps.warmup_steps = 1000;  // longer than the run
  EXPECT_DOUBLE_EQ(rate(in_steps, 99), 2.0);
}

TEST(Schedule, WithoutWarmUpOrDecayNothingDividesByZero) {
  EXPECT_DOUBLE_EQ(rate({.kind = "wsd", .warmup = 0, .decay = 0, .final = 0}, 0), 2.0);
  EXPECT_DOUBLE_EQ(rate({.kind = "wsd", .warmup = 0, .decay = 0, .final = 0}, 99), 2.0);
  EXPECT_DOUBLE_EQ(rate({.kind = "wsd", .warmup = 1, .decay = 0, .final = 0}, 99), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate({.kind = "wsd", .warmup = 0, .decay = 1, .final = 0.5}, 1.0, 0, {1, 1000}),
                   0.5);
}

}  // namespace
}  // namespace tetrad
