// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/errors.h"

namespace tetrad {
namespace {

const std::vector<float> example_logits = {0.0f, 2.0f, 1.0f, -1.0f, 2.0f};

std::vector<double> frequencies(const SamplingOptions& options, int draws = 20000) {
  std::vector<double> counts(example_logits.size(), 0.0);
  for (int i = 0; i < draws; ++i)
    counts[static_cast<std::size_t>(sample(example_logits, options, static_cast<std::uint64_t>(i)))] +=
        1.0 / draws;
  return counts;
}

TEST(Sampler, ZeroTemperatureTakesTheFirstOfTheLikeliest) {
  for (std::uint64_t position = 0; position < 10; ++position)
    EXPECT_EQ(sample(example_logits, {.temperature = 0, .seed = position}, position), 1);
}

TEST(Sampler, FollowsTheSoftmaxAtItsTemperature) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double total = 0;
    for (const float logit : example_logits) total += std::exp(logit / temperature);
    const std::vector<double> seen = frequencies({.temperature = temperature});
    for (std::size_t i = 0; i < example_logits.size(); ++i) {
      const double expected = std::exp(example_logits[i] / temperature) / total;
      EXPECT_NEAR(seen[i], expected, 5 * std::sqrt(expected * (1 - expected) / 20000))
          << temperature << " " << i;
    }
  }
}

TEST(Sampler, TopKAndTopPLeaveTheRestOut) {
  const std::vector<double> two = frequencies({.temperature = 1, .top_k = 2});
  EXPECT_EQ(two[0] + two[2] + two[3], 0);
  EXPECT_NEAR(two[1], 0.5, 0.02);
  const std::vector<double> most = frequencies({.temperature = 1, .top_p = 0.8});  // 0.39 + 0.39 + 0.14
  EXPECT_EQ(most[0] + most[3], 0);
  EXPECT_GT(most[2], 0);
  EXPECT_NEAR(frequencies({.temperature = 1, .top_p = 0})[1], 1, 1e-9) << "never fewer than one";
}

TEST(Sampler, IsAFunctionOfSeedAndPosition) {
  int different = 0;
  for (std::uint64_t position = 0; position < 100; ++position) {
    EXPECT_EQ(sample(example_logits, {.seed = 7}, position), sample(example_logits, {.seed = 7}, position));
    different +=
        sample(example_logits, {.seed = 7}, position) != sample(example_logits, {.seed = 8}, position) ? 1
                                                                                                       : 0;
  }
  EXPECT_GT(different, 20);
}

TEST(Sampler, RefusesWhatIsNoNumber) {
  testing::expect_bad_input([] { sample(std::vector<float>{0.0f, NAN}, {}, 0); }, {"not a number"});
}

}  // namespace
}  // namespace tetrad
