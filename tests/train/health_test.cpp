// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/health.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace tetrad {
namespace {

/// A loss that falls slowly, with a ripple of about 0.05.
double loss_at(int step) { return 3.0 - 0.001 * step + 0.05 * std::sin(step * 12.9898); }

LossWatch watch_after(int steps, const HealthConfig& config = {}) {
  LossWatch watch(config);
  for (int step = 0; step < steps; ++step) watch.add(loss_at(step));
  return watch;
}

TEST(LossWatch, SeesASpikeAndNothingElse) {
  LossWatch watch = watch_after(128);
  for (int step = 128; step < 600; ++step) {
    EXPECT_FALSE(watch.is_spike(loss_at(step))) << step;
    watch.add(loss_at(step));
  }
  EXPECT_TRUE(watch.is_spike(loss_at(600) + 1));
  EXPECT_FALSE(watch.is_spike(loss_at(600) - 1)) << "a fall is no spike";
}

TEST(LossWatch, TheValueItselfIsNotPartOfItsWindow) {
  // If it were, one value could not be further away than the window is wide.
  EXPECT_GT(watch_after(128).deviation(1e6), 1e6);
}

TEST(LossWatch, SaysNothingBeforeItsWindowIsFull) { EXPECT_EQ(watch_after(127).deviation(1e6), 0); }

TEST(LossWatch, AConstantLossDoesNotMakeEveryRippleASpike) {
  LossWatch watch{HealthConfig{}};
  for (int step = 0; step < 128; ++step) watch.add(2.0);
  EXPECT_FALSE(watch.is_spike(2.0 + 1e-6));
  EXPECT_TRUE(watch.is_spike(2.5));
}

TEST(LossWatch, DivergenceIsALastingRise) {
  LossWatch watch = watch_after(300);
  for (int step = 0; step < 100; ++step) watch.add(4.0);  // high for a while …
  for (int step = 0; step < 600; ++step) watch.add(2.7);  // … and back
  EXPECT_FALSE(watch.diverged());
  int needed = 0;
  while (!watch.diverged() && needed < 2000) watch.add(4.0), ++needed;
  EXPECT_GE(needed, 500);
  EXPECT_LT(needed, 520);
}

TEST(LossWatch, ItsStateIsComplete) {
  LossWatch watch = watch_after(200);
  LossWatch copy{HealthConfig{}};
  copy.restore(nlohmann::json::parse(watch.state().dump()));  // through text, as in a checkpoint
  for (int step = 200; step < 400; ++step) {
    EXPECT_EQ(copy.deviation(loss_at(step)), watch.deviation(loss_at(step)));
    EXPECT_EQ(copy.smoothed(), watch.smoothed());
    EXPECT_EQ(copy.best(), watch.best());
    copy.add(loss_at(step));
    watch.add(loss_at(step));
  }
}

}  // namespace
}  // namespace tetrad
