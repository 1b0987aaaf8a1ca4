// SPDX-License-Identifier: Apache-2.0
// What ranks would send, for ranks and models that are not there.
#include "tetrad/train/rank_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include "support/errors.h"
#include "tetrad/backend/cpu/memory.h"
#include "tetrad/backend/planned_backend.h"
#include "tetrad/model/decoder.h"
#include "tetrad/model/estimate.h"
#include "tetrad/model/presets.h"
#include "tetrad/optim/adamw_optimizer.h"
#include "tetrad/parallel/counting_communicator.h"
#include "tetrad/train/memory_plan.h"
#include "tetrad/train/run_parts.h"

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

/// All that a rank allocates in a step, on a device and among ranks that are not there.
std::int64_t allocated(const Config& config, int ranks) {
  PlannedBackend backend;
  CountingCommunicator counting(0, ranks);
  Routes routes(counting, ranks);
  const auto shards = make_shards(config, backend, routes);
  Decoder decoder(backend, config.model, config.train.microbatch, config.train.sequence, DType::bf16,
                  {.weights_as_codes = shards != nullptr}, shards.get());
  const AdamWOptimizer optimizer(backend, decoder.parameters(), config.optim);
  const GroupDeal deal = deal_groups(config, ranks);
  GradientSum gradients(backend, routes, decoder.parameters(), decoder.gradient_units(), deal,
                        gradient_wire(config));
  const Recipe recipe(config.precision, config.model.blocks());
  for (std::int64_t group = 0; group < deal.of_each(); ++group) {
    Pass pass;
    pass.recipe = &recipe;
    pass.gradients = &gradients;
    gradients.begin_microbatch(true, true);
    decoder.differentiate(pass, 1);
  }
  gradients.finish();
  return backend.peak_memory();
}

/// What is between an estimate and what is allocated: bands of other ranks that are a little smaller or
/// larger, and allocations that are rounded up.
TEST(RankPlan, MemoryIsWhatIsAllocated) {
  for (const char* model : {"llama-162m", "nemotron-h-1b"})
    for (const char* recipe : {"bf16", "nvfp4", "fp8"})
      for (const std::int64_t zero : {0, 1, 2, 3})
        for (const int ranks : {1, 2, 8})
          for (const char* wire : {"f32", "bf16"}) {
            Config config = config_of(model, 16);
            config.precision.recipe = recipe;
            config.parallel.zero = zero;
            config.parallel.gradient_wire = wire;
            config.train.batch = 16;
            config.train.sequence = 256;
            config.train.telemetry_every = 0;
            SCOPED_TRACE(fmt::format("{} {}, zero {}, {} ranks, {}", model, recipe, zero, ranks, wire));
            const MemoryEstimate estimate = plan_memory(config, kCpuMemory, {}, ranks).estimate;
            const auto measured = static_cast<double>(allocated(config, ranks));
            EXPECT_NEAR(estimate.total() / measured, 1, 0.01);
          }
}

}  // namespace
}  // namespace tetrad::testing::rank_plan_test
