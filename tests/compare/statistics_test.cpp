// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <span>
#include <tuple>
#include <utility>
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

TEST(Statistics, DunnettsTAsInTables) {
  // Two-sided 5 %, as published, to its two decimals.
  constexpr double kRounding = 0.0051;
  EXPECT_NEAR(dunnett_quantile(0.95, 1, 10), 2.23, kRounding);
  EXPECT_NEAR(dunnett_quantile(0.95, 2, 5), 3.03, kRounding);
  EXPECT_NEAR(dunnett_quantile(0.95, 2, 10), 2.57, kRounding);
  EXPECT_NEAR(dunnett_quantile(0.95, 4, 6), 3.26, kRounding);
  EXPECT_NEAR(dunnett_quantile(0.95, 3, 20), 2.54, kRounding);
  EXPECT_NEAR(dunnett_quantile(0.95, 9, 60), 2.77, kRounding);
  EXPECT_NEAR(dunnett_quantile(0.95, 1, 7), student_quantile(0.975, 7), 1e-9);
  EXPECT_NEAR(dunnett_cdf(dunnett_quantile(0.9, 3, 4), 3, 4), 0.9, 1e-9);
}

TEST(Statistics, TheResidualIsWhatArmsAndBlocksLeave) {
  const Losses additive = {{1, 2, 4}, {3, 4, 6}, {0, 1, 3}};
  EXPECT_NEAR(pool(std::vector<Losses>{additive}).variance, 0, 1e-24);
  EXPECT_EQ(pool(std::vector<Losses>{additive}).freedom, 4);
  // Two arms: half the variance of their differences, which are 1, 2 and 3.
  const Residual two = pool(std::vector<Losses>{{{5, 7, 1}, {6, 9, 4}}});
  EXPECT_NEAR(two.variance, 0.5, 1e-12);
  EXPECT_EQ(two.freedom, 2);
  // Groups have means of their own, and a copy of an arm brings no knowledge of noise.
  EXPECT_NEAR(pool(std::vector<Losses>{{{5, 7, 1}, {6, 9, 4}}, {{0, 0}, {10, 10}}}).variance, 1.0 / 3, 1e-12);
  const Residual copied = pool(std::vector<Losses>{{{5, 7, 1}, {6, 9, 4}, {5, 7, 1}}});
  EXPECT_EQ(copied.variance, two.variance);
  EXPECT_EQ(copied.freedom, two.freedom);
  EXPECT_EQ(pool(std::vector<Losses>{{{1}, {2}}}).freedom, 0);
  EXPECT_EQ(pool(std::vector<Losses>{{{1, 2}, {1, 2}}}).variance, 0);  // the same bits
}

/// Of two arms.
PairedGap gap_of(const std::vector<double>& gaps, const Rules& rules) {
  const Residual residual = pool(std::vector<Losses>{{std::vector<double>(gaps.size(), 0.0), gaps}});
  double mean = 0;
  for (const double gap : gaps) mean += gap / static_cast<double>(gaps.size());
  return measure_gap(mean, std::ssize(gaps), residual, rules);
}

TEST(Statistics, AGapWorkedOutByHand) {
  const PairedGap gap = gap_of({0.5, 1.0, 1.5}, {.margin = 2});  // mean 1, deviation 0.5
  EXPECT_EQ(gap.pairs, 3);
  EXPECT_NEAR(gap.mean, 1, 1e-12);
  EXPECT_NEAR(gap.deviation, 0.5, 1e-12);
  EXPECT_NEAR(gap.high - gap.mean, 4.302653 * 0.5 / std::sqrt(3.0), 1e-5);
  EXPECT_NEAR(gap.mean - gap.low, gap.high - gap.mean, 1e-12);
  EXPECT_FALSE(gap.differs());
  // t = 1 / (0.5 / sqrt 3) = 3.4641 with two degrees of freedom; F(t) = 1/2 + t / (2 sqrt(2 + t^2)).
  const double t = 2 * std::sqrt(3.0);
  EXPECT_NEAR(gap.p_zero, 1 - t / std::sqrt(2 + t * t), 1e-9);
  EXPECT_NEAR(gap.p_equivalent, gap.p_zero, 1e-9);  // the margin is as far away as zero
  EXPECT_EQ(gap.p_worse, 1);
}

TEST(Statistics, VerdictsFollowTheInterval) {
  const auto verdict = [](const std::vector<double>& gaps) { return judge(gap_of(gaps, {}), 1.5); };
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

TEST(Statistics, LooksShareAlpha) {
  EXPECT_DOUBLE_EQ(alpha_of_look(0.05, 1, 0), 0.05);
  EXPECT_DOUBLE_EQ(alpha_of_look(0.05, 2, 1), 0.025);
  EXPECT_DOUBLE_EQ(alpha_spent(0.05, 5, 4), 0.05);
  // Nobody spoke of these: half of the one before, and it is told.
  EXPECT_DOUBLE_EQ(alpha_of_look(0.05, 1, 2), 0.0125);
  EXPECT_DOUBLE_EQ(alpha_spent(0.05, 1, 2), 0.0875);
  EXPECT_LT(alpha_spent(0.05, 1, 50), 0.1 + 1e-12);
}

// ---- Simulated comparisons with known gaps: how often are their verdicts wrong?

constexpr double kMargin = 1.5;
constexpr int kComparisons = 4000;
constexpr double kAlpha = 0.05;
/// Five standard deviations of a share of alpha in so many comparisons.
constexpr double kNoise = 5 * 0.00345;

/// Arms with these gaps beside a reference, in so many blocks with means of their own.
class Simulation {
 public:
  Simulation(std::vector<double> gaps, double deviation) : gaps_(std::move(gaps)), noise_(0, deviation) {}

  /// Blocks are added to those that are there.
  void add_blocks(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const double block = 10 * noise_(generator_);
      losses_.resize(gaps_.size() + 1);
      for (std::size_t arm = 0; arm < losses_.size(); ++arm)
        losses_[arm].push_back((arm == 0 ? 0 : gaps_[arm - 1]) + block + noise_(generator_));
    }
  }
  void clear() { losses_.clear(); }

  /// The interval's reach is computed once for as many blocks and the same rules.
  std::vector<PairedGap> measure(const Rules& rules) {
    const Residual residual = pool(std::span(&losses_, 1));
    const auto key = std::tuple(residual.freedom, rules.alpha, rules.arms);
    if (!critical_.contains(key))
      critical_[key] = dunnett_quantile(1 - rules.alpha, rules.arms, residual.freedom);
    const auto blocks = static_cast<double>(losses_[0].size());
    const double reach = critical_[key] * std::sqrt(2 * residual.variance / blocks);
    std::vector<PairedGap> gaps;
    for (std::size_t arm = 1; arm < losses_.size(); ++arm) {
      PairedGap gap;
      gap.pairs = std::ssize(losses_[0]);
      for (std::size_t i = 0; i < losses_[0].size(); ++i)
        gap.mean += (losses_[arm][i] - losses_[0][i]) / blocks;
      gap.low = gap.mean - reach;
      gap.high = gap.mean + reach;
      gaps.push_back(gap);
    }
    return gaps;
  }

 private:
  std::vector<double> gaps_;
  std::normal_distribution<double> noise_;
  std::mt19937_64 generator_{42};
  Losses losses_;
  std::map<std::tuple<double, double, std::int64_t>, double> critical_;
};

/// Shares of comparisons with one arm.
struct Shares {
  double equivalent = 0, worse = 0, differs = 0;
};

Shares simulate(double true_gap, double deviation, std::size_t blocks) {
  Simulation simulation({true_gap}, deviation / std::sqrt(2.0));
  Shares shares;
  for (int i = 0; i < kComparisons; ++i) {
    simulation.clear();
    simulation.add_blocks(blocks);
    const PairedGap gap = simulation.measure({.margin = kMargin, .alpha = kAlpha})[0];
    const Verdict verdict = judge(gap, kMargin);
    shares.equivalent += verdict == Verdict::equivalent ? 1.0 / kComparisons : 0;
    shares.worse += verdict == Verdict::worse ? 1.0 / kComparisons : 0;
    shares.differs += gap.differs() ? 1.0 / kComparisons : 0;
  }
  return shares;
}

TEST(Statistics, TheSimulationMeasuresAsTheToolDoes) {
  Simulation simulation({0.5, -1}, 0.3);
  simulation.add_blocks(3);
  const Rules rules{.margin = kMargin, .alpha = kAlpha, .arms = 2};
  const PairedGap gap = simulation.measure(rules)[1];
  const Residual residual{
      (gap.high - gap.mean) * (gap.high - gap.mean) * 3 / 2 / std::pow(dunnett_quantile(0.95, 2, 4), 2), 4};
  const PairedGap same = measure_gap(gap.mean, 3, residual, rules);
  EXPECT_NEAR(same.low, gap.low, 1e-9);
  EXPECT_NEAR(same.high, gap.high, 1e-9);
}

TEST(Statistics, SimulatedComparisonsErrAsRarelyAsStated) {
  for (const std::size_t blocks : {2U, 3U, 6U, 10U}) {
    SCOPED_TRACE(blocks);
    // At the margin itself both verdicts would be wrong; with so little noise that the other margin is far
    // away, each comes exactly as often as one end of the interval fails.
    const Shares at_margin = simulate(1.5, 0.05, blocks);
    EXPECT_NEAR(at_margin.equivalent, kAlpha / 2, kNoise);
    EXPECT_NEAR(at_margin.worse, kAlpha / 2, kNoise);
    const Shares noisy = simulate(1.5, 2, blocks);
    EXPECT_LT(noisy.equivalent, kAlpha + kNoise);
    EXPECT_LT(noisy.worse, kAlpha + kNoise);
    // Beyond the margin "equivalent" is rarer still, within it "worse".
    EXPECT_LT(simulate(2, 0.5, blocks).equivalent, kAlpha);
    EXPECT_LT(simulate(1, 0.5, blocks).worse, kAlpha);
    // Where there is no gap, one is seen exactly as often as stated.
    EXPECT_NEAR(simulate(0, 0.5, blocks).differs, kAlpha, kNoise);
  }
}

TEST(Statistics, EnoughPairsFindWhatIsThere) {
  EXPECT_GT(simulate(0.5, 0.5, 6).equivalent, 0.9);
  EXPECT_GT(simulate(2.5, 0.5, 6).worse, 0.9);
  EXPECT_GT(simulate(0.5, 0.25, 6).differs, 0.9);
}

/// All arms are as good as the reference: in how many comparisons is any of them said to differ?
double any_differs(std::size_t arms, std::size_t blocks, std::int64_t family) {
  Simulation simulation(std::vector<double>(arms, 0.0), 0.3);
  double share = 0;
  for (int i = 0; i < kComparisons; ++i) {
    simulation.clear();
    simulation.add_blocks(blocks);
    const std::vector<PairedGap> gaps = simulation.measure({.alpha = kAlpha, .arms = family});
    share += std::ranges::any_of(gaps, &PairedGap::differs) ? 1.0 / kComparisons : 0;
  }
  return share;
}

TEST(Statistics, ManyArmsTogetherErrAsRarelyAsStated) {
  EXPECT_NEAR(any_differs(3, 3, 3), kAlpha, kNoise);
  EXPECT_NEAR(any_differs(8, 2, 8), kAlpha, kNoise);
  EXPECT_GT(any_differs(8, 2, 1), 2 * kAlpha) << "each by itself they would err more often";
}

/// Blocks are added until a difference is seen that is not there.
double sees_at_any_look(std::int64_t planned, const std::vector<std::size_t>& added) {
  Simulation simulation({0}, 0.3);
  double share = 0;
  for (int i = 0; i < kComparisons; ++i) {
    simulation.clear();
    bool seen = false;
    for (std::size_t look = 0; look < added.size(); ++look) {
      simulation.add_blocks(added[look]);
      seen |=
          simulation.measure({.alpha = alpha_of_look(kAlpha, planned, static_cast<std::int64_t>(look))})[0]
              .differs();
    }
    share += seen ? 1.0 / kComparisons : 0;
  }
  return share;
}

TEST(Statistics, LookingAgainErrsAsRarelyAsStated) {
  EXPECT_LT(sees_at_any_look(3, {3, 3, 3}), kAlpha + kNoise);
  const double unplanned = sees_at_any_look(1, {3, 3, 3});
  EXPECT_LT(unplanned, alpha_spent(kAlpha, 1, 2) + kNoise);
  EXPECT_GT(unplanned, kAlpha) << "which is why the report says so";
}

TEST(Statistics, SaysHowManyPairsWouldDecide) {
  const Rules rules{.margin = 2};
  const PairedGap gap = gap_of({0.0, 2.0}, rules);
  ASSERT_EQ(judge(gap, 2), Verdict::undecided);
  EXPECT_GT(pairs_to_decide(gap, 1, rules), gap.pairs);
  EXPECT_EQ(pairs_to_decide(gap, 0, rules), 0);
  EXPECT_EQ(pairs_to_decide(gap_of({1.9, 2.1}, rules), 1e-9, rules), 0);
  // Four of five comparisons with that many pairs decide: here one of 0.5 % with a deviation of 1 %.
  const PairedGap known = measure_gap(0.5, 2, {0.5, 1}, {.margin = kMargin});
  const std::int64_t pairs = pairs_to_decide(known, kMargin - 0.5, {.margin = kMargin});
  EXPECT_NEAR(simulate(0.5, known.deviation, static_cast<std::size_t>(pairs)).equivalent, 0.8, 0.06) << pairs;
}

}  // namespace
}  // namespace tetrad
