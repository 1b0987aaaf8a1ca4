// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/mixture.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "support/errors.h"
#include "tetrad/data/permutation.h"

namespace tetrad {
namespace {

TEST(Mixture, PlansWhatItDraws) {
  Mixture mixture({{"a", 10}, {"b", 7}}, {{0.3, {1, 0}}, {1, {1, 3}}}, 1000, 1);
  std::array<double, 2> drawn = {};
  const std::array planned = {mixture.planned_samples(0), mixture.planned_samples(1)};
  for (int i = 0; i < 1000; ++i) ++drawn[static_cast<std::size_t>(mixture.next().source)];
  for (std::size_t source = 0; source < 2; ++source) EXPECT_NEAR(planned[source], drawn[source], 2);
}

using testing::expect_bad_input;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<Sample> draw(Mixture& mixture, std::int64_t count) {
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < count; ++i) samples.push_back(mixture.next());
  return samples;
}

Mixture two_phases(std::uint64_t seed = 1) {
  return {{{"a", 100}, {"b", 37}, {"c", 1}}, {{0.7, {0.5, 0.5, 0}}, {1.0, {0.1, 0.2, 0.7}}}, 1000, seed};
}

TEST(Permutation, IsOne) {
  for (const std::int64_t count : {1, 2, 3, 5, 16, 17, 100, 1000, 4097})
    for (const std::uint64_t epoch : {0U, 1U, 12345U}) {
      std::set<std::int64_t> seen;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t to = permuted(i, count, 42, epoch);
        ASSERT_GE(to, 0);
        ASSERT_LT(to, count);
        seen.insert(to);
      }
      ASSERT_EQ(std::ssize(seen), count);
    }
  const std::int64_t large = (std::int64_t{1} << 60) - 5;
  EXPECT_LT(permuted(large - 1, large, 1, 0), large);
}

TEST(Permutation, LooksRandom) {
  // Fixed points of a random permutation: 1 in expectation, whatever the size; neighbours stay neighbours
  // twice.
  constexpr std::int64_t kCount = 1000;
  int fixed = 0;
  int neighbours = 0;
  int same = 0;
  for (std::uint64_t epoch = 0; epoch < 100; ++epoch)
    for (std::int64_t i = 0; i + 1 < kCount; ++i) {
      const std::int64_t to = permuted(i, kCount, 9, epoch);
      fixed += to == i ? 1 : 0;
      neighbours += std::abs(permuted(i + 1, kCount, 9, epoch) - to) == 1 ? 1 : 0;
      same += permuted(i, kCount, 9, epoch + 1) == to ? 1 : 0;
    }
  EXPECT_NEAR(fixed, 100, 50);  // Poisson: five standard deviations
  EXPECT_NEAR(neighbours, 200, 71);
  EXPECT_NEAR(same, 100, 50);
}

TEST(Mixture, ProportionsAreExactToWithinOneSampleAtEveryMoment) {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    const std::size_t count = 1 + random() % 8;
    std::vector<MixtureSource> sources;
    std::vector<double> weights;
    for (std::size_t i = 0; i < count; ++i) {
      sources.push_back({std::string(1, static_cast<char>('a' + i)), 50});
      weights.push_back(std::exp(std::uniform_real_distribution<double>(-4, 4)(random)));
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    Mixture mixture(sources, {{1.0, weights}}, 3000, 1);
    std::vector<double> drawn(count);
    for (int n = 1; n <= 3000; ++n) {
      ++drawn[static_cast<std::size_t>(mixture.next().source)];
      for (std::size_t i = 0; i < count; ++i) ASSERT_LT(std::abs(drawn[i] - weights[i] / sum * n), 1.0);
    }
  }
}

TEST(Mixture, PhasesBeginAndEndWhereTheyShould) {
  Mixture mixture = two_phases();
  std::vector<int> first(3);
  std::vector<int> second(3);
  EXPECT_EQ(mixture.phase(), 0);
  for (int i = 0; i < 700; ++i) ++first[static_cast<std::size_t>(mixture.next().source)];
  EXPECT_EQ(mixture.phase(), 1);
  for (int i = 0; i < 300; ++i) ++second[static_cast<std::size_t>(mixture.next().source)];
  EXPECT_EQ(first, (std::vector<int>{350, 350, 0}));
  EXPECT_EQ(second, (std::vector<int>{30, 60, 210}));
  // It goes on in the last phase.
  for (int i = 0; i < 100; ++i) ++second[static_cast<std::size_t>(mixture.next().source)];
  EXPECT_EQ(second, (std::vector<int>{40, 80, 280}));
}

TEST(Mixture, EveryEpochHasEverySampleOnceAlsoAcrossPhases) {
  Mixture mixture = two_phases();
  std::vector<std::vector<std::int64_t>> drawn(3);
  for (const Sample& sample : draw(mixture, 1000))
    drawn[static_cast<std::size_t>(sample.source)].push_back(sample.index);
  ASSERT_EQ(drawn[1].size(),
            410U);  // 11 epochs of 37 and 3 more; the first ends in phase 0, the tenth in phase 1
  for (std::size_t epoch = 0; epoch < 11; ++epoch) {
    const std::set<std::int64_t> seen(drawn[1].begin() + static_cast<std::ptrdiff_t>(37 * epoch),
                                      drawn[1].begin() + static_cast<std::ptrdiff_t>(37 * (epoch + 1)));
    EXPECT_EQ(seen.size(), 37U);
    EXPECT_EQ(*seen.rbegin(), 36);
  }
  EXPECT_NE(std::vector(drawn[1].begin(), drawn[1].begin() + 37),
            std::vector(drawn[1].begin() + 37, drawn[1].begin() + 74));
  EXPECT_EQ(mixture.epoch(1), 11);
}

TEST(Mixture, GoesOnAfterRestoreAsIfNothingHadHappened) {
  Mixture whole = two_phases();
  const std::vector<Sample> expected = draw(whole, 1100);
  for (const std::int64_t stop : {0, 1, 350, 699, 700, 701, 1000, 1050}) {
    Mixture first = two_phases();
    first.skip(stop);
    const nlohmann::json saved = first.state();
    Mixture second = two_phases();
    second.restore(nlohmann::json::parse(saved.dump()).get<MixtureState>());
    EXPECT_EQ(second.state(), first.state());
    EXPECT_EQ(draw(second, 1100 - stop), std::vector(expected.begin() + stop, expected.end())) << stop;
  }
}

TEST(Mixture, NothingIsRepeatedOrLostWhenWeightsChangeMidRun) {
  Mixture before({{"a", 100}, {"b", 200}}, {{1.0, {1, 1}}}, 1000, 5);
  std::vector<Sample> samples = draw(before, 120);
  // Other weights, and a source more.
  Mixture after({{"a", 100}, {"b", 200}, {"c", 10}}, {{0.5, {1, 2, 1}}, {1.0, {0, 1, 1}}}, 600, 5);
  after.restore(before.state());
  const std::vector<Sample> rest = draw(after, 200);
  samples.insert(samples.end(), rest.begin(), rest.end());
  std::set<std::int64_t> of_b;
  std::int64_t drawn_b = 0;
  for (const Sample& sample : samples)
    if (sample.source == 1 && ++drawn_b <= 200) {
      EXPECT_TRUE(of_b.insert(sample.index).second);
    }
  EXPECT_GT(drawn_b, 140);
}

TEST(Mixture, SeedsAndNamesDecideTheOrder) {
  Mixture a({{"a", 1000}}, {{1.0, {1}}}, 100, 1);
  Mixture same({{"a", 1000}}, {{1.0, {1}}}, 100, 1);
  Mixture other_seed({{"a", 1000}}, {{1.0, {1}}}, 100, 2);
  Mixture other_name({{"b", 1000}}, {{1.0, {1}}}, 100, 1);
  const auto samples = draw(a, 100);
  EXPECT_EQ(draw(same, 100), samples);
  EXPECT_NE(draw(other_seed, 100), samples);
  EXPECT_NE(draw(other_name, 100), samples);
}

TEST(Mixture, RefusesWhatMakesNoSense) {
  const std::vector<MixtureSource> sources = {{"a", 10}, {"b", 10}};
  const auto make = [&](const std::vector<MixturePhase>& phases) {
    return [&, phases] { const Mixture mixture(sources, phases, 100, 1); };
  };
  expect_bad_input(make({}), {"until"});
  expect_bad_input(make({{0.5, {1, 1}}}), {"until 0.5"});
  expect_bad_input(make({{0.5, {1, 1}}, {0.5, {1, 1}}, {1.0, {1, 1}}}), {"phase 1"});
  expect_bad_input(make({{1.5, {1, 1}}}), {"1.5"});
  expect_bad_input(make({{kNaN, {1, 1}}}), {"nan"});
  expect_bad_input(make({{1.0, {1}}}), {"weights"});
  expect_bad_input(make({{1.0, {1, -1}}}), {"-1"});
  expect_bad_input(make({{1.0, {1, kNaN}}}), {"nan"});
  expect_bad_input(make({{1.0, {0, 0}}}), {"sum"});
  expect_bad_input([] { const Mixture m({}, {{1.0, {}}}, 100, 1); }, {"source"});
  expect_bad_input([] { const Mixture m({{"a", 0}}, {{1.0, {1}}}, 100, 1); }, {"\"a\""});
  expect_bad_input([] { const Mixture m({{"a", 1}, {"a", 1}}, {{1.0, {1, 1}}}, 100, 1); }, {"two"});

  Mixture mixture(sources, {{1.0, {1, 1}}}, 100, 1);
  MixtureState state = mixture.state();
  state.cursors["gone"] = 3;
  expect_bad_input([&] { mixture.restore(state); }, {"gone"});
  for (const char* text : {"{}", "[]", R"({"position": -1, "phase": 0, "cursors": {}, "phase_cursors": {}})",
                           R"({"position": 1.5, "phase": 0, "cursors": {}, "phase_cursors": {}})",
                           R"({"position": 1, "phase": 0, "cursors": {"a": "x"}, "phase_cursors": {}})",
                           R"({"position": 1, "phase": 0, "cursors": [], "phase_cursors": {}})"})
    expect_bad_input([&] { nlohmann::json::parse(text).get<MixtureState>(); }, {"saved position"});
}

}  // namespace
}  // namespace tetrad
