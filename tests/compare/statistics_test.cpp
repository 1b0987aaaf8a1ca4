// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace tetrad {
namespace {

TEST(Statistics, StudentsTAsInTables) {
  EXPECT_NEAR(student_quantile(0.95, 1), 6.313752, 1e-5);
  EXPECT_NEAR(student_quantile(0.95, 2), 2.919986, 1e-5);
  EXPECT_NEAR(student_quantile(0.975, 5), 2.570582, 1e-5);
  EXPECT_NEAR(student_quantile(0.05, 9), -1.833113, 1e-5);
  EXPECT_NEAR(student_quantile(0.95, 1000), 1.646379, 1e-5);
  EXPECT_NEAR(student_cdf(0, 3), 0.5, 1e-12);
  EXPECT_NEAR(student_cdf(1, 1), 0.75, 1e-12);  // Cauchy: 1/2 + atan(1) / pi
}

TEST(Statistics, BoundsOfProbabilitiesAsInTables) {
  EXPECT_NEAR(upper_bound(0, 10, 0.05), 1 - std::pow(0.05, 0.1), 1e-9);
  EXPECT_NEAR(upper_bound(0, 10, 0.05), 0.2589, 1e-4);
  EXPECT_NEAR(upper_bound(1, 10, 0.05), 0.3942, 1e-4);
  EXPECT_NEAR(upper_bound(2, 2, 0.05), 1, 1e-12);
}

TEST(Statistics, AGapWorkedOutByHand) {
  const std::vector<double> gaps = {0.5, 1.0, 1.5};  // mean 1, deviation 0.5
  const PairedGap gap = measure_gap(gaps, 2, 0.05);
  EXPECT_EQ(gap.pairs, 3);
  EXPECT_NEAR(gap.mean, 1, 1e-12);
  EXPECT_NEAR(gap.deviation, 0.5, 1e-12);
  EXPECT_NEAR(gap.high - gap.mean, 2.919986 * 0.5 / std::sqrt(3.0), 1e-5);
  EXPECT_NEAR(gap.mean - gap.low, gap.high - gap.mean, 1e-12);
  // t = (1 - 2) / (0.5 / sqrt 3) = -3.4641 with two degrees of freedom; F(t) = 1/2 + t / (2 sqrt(2 + t^2)).
  const double t = -2 * std::sqrt(3.0);
  EXPECT_NEAR(gap.p_equivalent, 0.5 + t / (2 * std::sqrt(2 + t * t)), 1e-9);
  EXPECT_NEAR(gap.p_worse, 1 - gap.p_equivalent, 1e-9);
}

TEST(Statistics, VerdictsFollowTheInterval) {
  const auto verdict = [](const std::vector<double>& gaps) {
    return judge(measure_gap(gaps, 1.5, 0.05), 1.5);
  };
  EXPECT_EQ(verdict({0.1, 0.2, 0.3}), Verdict::equivalent);
  EXPECT_EQ(verdict({-0.1, 0, 0.1}), Verdict::equivalent);
  EXPECT_EQ(verdict({0, 0}), Verdict::equivalent);  // the same bits
  EXPECT_EQ(verdict({3.0, 3.1, 3.2}), Verdict::worse);
  EXPECT_EQ(verdict({-3.0, -3.1, -3.2}), Verdict::better);
  EXPECT_EQ(verdict({1.3, 1.5, 1.7}), Verdict::undecided);
  EXPECT_EQ(verdict({-4, 0.0, 4}), Verdict::undecided);  // "no significant difference" is not equivalence
  EXPECT_EQ(verdict({0.1}), Verdict::undecided);
  EXPECT_EQ(verdict({}), Verdict::undecided);
}

TEST(Statistics, SaysHowManyPairsWouldDecide) {
  const std::vector<double> gaps = {0.0, 2.0};
  const PairedGap gap = measure_gap(gaps, 2, 0.05);
  ASSERT_EQ(judge(gap, 2), Verdict::undecided);
  const std::int64_t pairs = pairs_to_decide(gap, 2, 0.05);
  const auto reach = [&](std::int64_t n) {
    return student_quantile(0.95, static_cast<double>(n - 1)) * gap.deviation /
           std::sqrt(static_cast<double>(n));
  };
  EXPECT_LT(reach(pairs), 1);
  EXPECT_GE(reach(pairs - 1), 1);
  const std::vector<double> at_the_margin = {1.9, 2.1};
  EXPECT_EQ(pairs_to_decide(measure_gap(at_the_margin, 2, 0.05), 2, 0.05), 0);
}

/// Shares of the verdicts in simulated comparisons with a known gap.
struct Shares {
  double equivalent = 0, worse = 0;
};

Shares simulate(double true_gap, double deviation, std::size_t pairs) {
  constexpr int kComparisons = 4000;
  constexpr double kMargin = 1.5;
  std::mt19937_64 generator(42);
  std::normal_distribution<double> noise(true_gap, deviation);
  Shares shares;
  std::vector<double> gaps(pairs);
  for (int i = 0; i < kComparisons; ++i) {
    for (double& gap : gaps) gap = noise(generator);
    const Verdict verdict = judge(measure_gap(gaps, kMargin, 0.05), kMargin);
    shares.equivalent += verdict == Verdict::equivalent ? 1.0 / kComparisons : 0;
    shares.worse += verdict == Verdict::worse ? 1.0 / kComparisons : 0;
  }
  return shares;
}

TEST(Statistics, SimulatedComparisonsErrAsRarelyAsStated) {
  // Five standard deviations of a share of 0.05 in 4,000 comparisons.
  constexpr double kNoise = 5 * 0.00345;
  for (const std::size_t pairs : {2U, 3U, 6U, 10U}) {
    SCOPED_TRACE(pairs);
    // At the margin itself both verdicts would be wrong, and neither may come more often than alpha; with so
    // little noise that the other margin is far away, exactly as often.
    const Shares at_margin = simulate(1.5, 0.05, pairs);
    EXPECT_NEAR(at_margin.equivalent, 0.05, kNoise);
    EXPECT_NEAR(at_margin.worse, 0.05, kNoise);
    const Shares noisy = simulate(1.5, 2, pairs);
    EXPECT_LT(noisy.equivalent, 0.05 + kNoise);
    EXPECT_LT(noisy.worse, 0.05 + kNoise);
    // Beyond the margin "equivalent" is rarer still, within it "worse".
    EXPECT_LT(simulate(2, 0.5, pairs).equivalent, 0.05);
    EXPECT_LT(simulate(1, 0.5, pairs).worse, 0.05);
  }
}

TEST(Statistics, EnoughPairsFindWhatIsThere) {
  EXPECT_GT(simulate(0.5, 0.5, 6).equivalent, 0.95);
  EXPECT_GT(simulate(2.5, 0.5, 6).worse, 0.95);
}

}  // namespace
}  // namespace tetrad
