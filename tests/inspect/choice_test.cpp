// SPDX-License-Identifier: Apache-2.0
// The choice is arithmetic: what goes in is made up, and what must come out is known.

#include <gtest/gtest.h>

#include "tetrad/inspect/choice.h"

namespace tetrad::testing {
namespace {

using Levels = std::vector<Level>;
constexpr Level kQuantized = Level::quantized;
constexpr Level kFp8 = Level::fp8;
constexpr Level kBf16 = Level::bf16;

/// Gains of the gradient alone, with little noise.
Candidate candidate(double share, double bf16, double fp8) {
  const auto gain = [](double mean) { return Gain{{mean, 0.01}, {0, 0.01}}; };
  return {share, gain(bf16), gain(fp8)};
}

TEST(Choose, TakesTheBestForItsCostWithinTheBudget) {
  const std::vector<Candidate> candidates = {candidate(0.2, 1, 0.1), candidate(0.1, 0.9, 0.1),
                                             candidate(0.1, 0.4, 0.1), candidate(0.6, 2, 0.1)};
  EXPECT_EQ(choose(candidates, 0.1), (Levels{kQuantized, kBf16, kQuantized, kQuantized}));
  EXPECT_EQ(choose(candidates, 0.3), (Levels{kBf16, kBf16, kQuantized, kQuantized}));
  EXPECT_EQ(choose(candidates, 1), (Levels{kBf16, kBf16, kBf16, kBf16}));
  EXPECT_EQ(choose(candidates, 0), Levels(4, kQuantized));
}

TEST(Choose, TakesFp8WhereItGainsNineTenths) {
  const std::vector<Candidate> candidates = {candidate(0.2, 1, 0.95), candidate(0.2, 1, 0.85)};
  EXPECT_EQ(choose(candidates, 1), (Levels{kFp8, kBf16}));
  EXPECT_EQ(choose(candidates, 0.1), (Levels{kFp8, kQuantized}));  // it costs half of its share
  EXPECT_EQ(choose(candidates, 0.2), (Levels{kFp8, kFp8}))
      << "BF16 does not fit, and FP8 is better than nothing";
  std::vector<Candidate> without = candidates;
  for (Candidate& one : without) one.fp8.reset();
  EXPECT_EQ(choose(without, 0.3), (Levels{kBf16, kQuantized}));
}

TEST(Choose, LeavesNoiseOut) {
  Candidate noisy = candidate(0.1, 1, 1);
  noisy.bf16.gradient_error.error = 0.51;
  Candidate worse = candidate(0.1, -1, -1);
  const std::vector<Candidate> candidates = {noisy, worse, candidate(0.1, 0, 0)};
  EXPECT_EQ(choose(candidates, 1), Levels(3, kQuantized));
}

TEST(Choose, LossComesSecond) {
  Candidate by_loss = candidate(0.1, 0, 0);
  by_loss.bf16.loss = {100, 0.01};
  const std::vector<Candidate> candidates = {by_loss, candidate(0.1, 0.1, 0)};
  EXPECT_EQ(choose(candidates, 0.1), (Levels{kQuantized, kBf16}));
  EXPECT_EQ(choose(candidates, 0.2), (Levels{kBf16, kBf16}));
}

TEST(Judge, ASuggestionMustHelpOrSave) {
  const Estimate better{1, 0.1};
  const Estimate noise{0.1, 0.1};
  const Estimate worse{-1, 0.1};
  EXPECT_EQ(judge({better, noise}, 0.2, 0.1), Advice::better);
  EXPECT_EQ(judge({noise, noise}, 0.1, 0.2), Advice::as_good);
  EXPECT_EQ(judge({noise, noise}, 0.2, 0.2), Advice::keep_today);
  EXPECT_EQ(judge({noise, better}, 0.2, 0.2), Advice::better);
  EXPECT_EQ(judge({noise, worse}, 0.1, 0.2), Advice::keep_today);
  EXPECT_EQ(judge({worse, better}, 0.1, 0.2), Advice::keep_today);
  EXPECT_EQ(judge({better, worse}, 0.1, 0.2), Advice::better) << "weights fit what they were trained in";
}

TEST(Keep, FoldsWholeBlocks) {
  const std::vector<Unit> layers = {
      {"blocks.0.qkv", 0, {"blocks.0.qkv"}, 0, 1, 0.1}, {"blocks.0.out", 0, {"blocks.0.out"}, 1, 1, 0.1},
      {"blocks.1.up", 1, {"blocks.1.up"}, 2, 1, 0.1},   {"blocks.1.down", 1, {"blocks.1.down"}, 3, 1, 0.1},
      {"blocks.2.up", 2, {"blocks.2.up"}, 4, 1, 0.1},   {"blocks.2.down", 2, {"blocks.2.down"}, 5, 1, 0.1}};
  EXPECT_EQ(keep(layers, Levels{kBf16, kBf16, kFp8, kFp8, kQuantized, kFp8}),
            (HighPrecisionConfig{0, 0, {"blocks.0.*"}, {"blocks.1.*", "blocks.2.down"}}));
  EXPECT_EQ(keep(layers, Levels{kBf16, kFp8, kQuantized, kQuantized, kQuantized, kBf16}),
            (HighPrecisionConfig{0, 0, {"blocks.0.qkv", "blocks.2.down"}, {"blocks.0.out"}}));
  EXPECT_EQ(keep(layers, Levels(6, kQuantized)), (HighPrecisionConfig{0, 0, {}, {}}));
}

TEST(Estimates, AreMeansWithStandardErrors) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(estimate(values).mean, 2.5);
  EXPECT_NEAR(estimate(values).error, 0.6454972243679028, 1e-12);  // sqrt(5/3/4)
  EXPECT_TRUE(estimate(values).is_above_noise());
  EXPECT_TRUE((Estimate{0, 0}).is_noise());
  EXPECT_TRUE((Estimate{-3, 1}).is_below_noise());
}

}  // namespace
}  // namespace tetrad::testing
