// SPDX-License-Identifier: Apache-2.0
// What ranks would send, for ranks and models that are not there.
#include "tetrad/train/rank_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/errors.h"
#include "tetrad/model/estimate.h"
#include "tetrad/model/presets.h"

namespace tetrad::testing::rank_plan_test {
namespace {

Config config_of(const char* model, std::int64_t groups) {
  Config config;
  config.model = *find_preset(model);
  config.precision.recipe = "nvfp4";
  config.train.batch = 2 * groups;
  config.train.microbatch = 1;
  config.train.groups = groups;
  config.train.sequence = 8192;
  config.train.steps = 10;
  return config;
}

std::int64_t bytes_of(const RankPlan& plan, Collective collective) {
  const auto found = std::ranges::find(plan.per_step, collective, &Traffic::collective);
  return found == plan.per_step.end() ? 0 : found->bytes;
}

/// All but its own part goes to others, and its own part, once it is added up, to each of them.
TEST(RankPlan, GradientsTravelTwice) {
  for (const char* model : {"llama3-8b", "nemotron-h-8b"}) {
    const Config config = config_of(model, 1024);
    const std::int64_t gradients = 4 * parameter_count(config.model);
    for (const int ranks : {2, 8, 64, 1024}) {
      SCOPED_TRACE(ranks);
      const RankPlan plan = plan_ranks(config, ranks);
      const std::int64_t own = gradients - bytes_of(plan, Collective::exchange);
      EXPECT_EQ(bytes_of(plan, Collective::gather), own * (ranks - 1));
      // As even as single elements of each tensor can be dealt.
      EXPECT_NEAR(static_cast<double>(own), static_cast<double>(gradients) / ranks, 4096);
      EXPECT_EQ(bytes_of(plan, Collective::max_u32), 0);
      EXPECT_GT(bytes_of(plan, Collective::share), (ranks - 1) * 8 * 2048 / ranks) << "the losses at least";
    }
  }
}

TEST(RankPlan, OneRankSendsNothing) {
  const RankPlan plan = plan_ranks(config_of("llama3-8b", 8), 1);
  for (const Traffic& traffic : plan.per_step) EXPECT_EQ(traffic.bytes, 0) << name_of(traffic.collective);
  EXPECT_EQ(exchange_memory(config_of("llama3-8b", 8), 1), 0);
}

TEST(RankPlan, EachRankHasItsPartOfAStep) {
  const Config config = config_of("llama3-8b", 8);
  const TrainConfig part = part_of_rank(config, 4);
  EXPECT_EQ(part.groups, 2);
  EXPECT_EQ(part.batch, 4);
  EXPECT_EQ(part.microbatches() * 4, config.train.microbatches());
  expect_bad_input([&] { part_of_rank(config, 3); }, {"train.groups is 8"});
}

}  // namespace
}  // namespace tetrad::testing::rank_plan_test
