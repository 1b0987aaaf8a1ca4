// SPDX-License-Identifier: Apache-2.0
// Plans for memory: which is chosen as there is less of it, and that a run which moves things gives the same
// bits.
#include "tetrad/train/memory_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tetrad/backend/memory.h"
#include "tetrad/model/presets.h"
#include "tetrad/ops/adamw.h"
#include "tetrad/train/trainer.h"

namespace tetrad::testing::memory_plan_test {
namespace {

constexpr double kGb = 1e9;
constexpr std::int64_t as_bytes(double gigabytes) { return static_cast<std::int64_t>(gigabytes * kGb); }

Config config_of(const char* model, const char* recompute = "auto") {
  Config config;
  config.model = *find_preset(model);
  config.precision.recipe = "nvfp4";
  config.train.batch = config.train.microbatch = 1;
  config.train.sequence = 8192;
  config.train.steps = 10;
  config.train.recompute = recompute;
  return config;
}

MemoryPlan plan(const Config& config, const Room& room) {
  return plan_memory(config, memory_traits("cuda"), room);
}

/// The same at every block.
bool recomputes(const MemoryPlan& made, const Config& config, const RecomputePlan& expected) {
  for (std::int64_t block = 0; block < config.model.blocks(); ++block) {
    const char letter = config.model.pattern[static_cast<std::size_t>(block)];
    if (made.recompute.of(block, letter) != expected.of(block, letter)) return false;
  }
  return true;
}

TEST(MemoryPlan, TakesTheCheapestThatFits) {
  const Config config = config_of("llama3-8b");
  const double resident =
      plan(config, {}).estimate.total() / kGb;  // nobody knows what there is: nothing is moved
  struct Case {
    double device, host;
    bool moves;
    std::string recompute;
  };
  for (const Case& c : {Case{resident + 1, 100, false, "none"}, Case{resident - 1, 100, true, "none"},
                        Case{resident - 60, 100, true, "none"},
                        Case{resident - 70, 100, true,
                             "cheap in 5 of 32 feed-forward blocks, cheap in 5 of 32 attention blocks, full "
                             "in 9 of 32 feed-forward blocks"},
                        Case{resident - 20, 0, false,
                             "cheap in 5 of 32 attention blocks, full in 32 of 32 feed-forward blocks, full "
                             "in 7 of 32 attention blocks"}}) {
    const MemoryPlan made = plan(config, {as_bytes(c.device), as_bytes(c.host)});
    EXPECT_EQ(made.recompute.describe(config.model.pattern), c.recompute) << c.device;
    EXPECT_EQ(made.host_moments > 0, c.moves) << c.device;
    EXPECT_LE(made.estimate.total(), c.device * kGb);
    EXPECT_LE(made.estimate.host, c.host * kGb);
    EXPECT_FALSE(shortage(config, memory_traits("cuda"), {as_bytes(c.device), as_bytes(c.host)}));
  }
}

TEST(MemoryPlan, WithLessMemoryNoBlockKeepsMore) {
  for (const char* model : {"llama3-8b", "nemotron-h-12b"})
    for (const char* recipe : {"bf16", "nvfp4"})
      for (const double host : {0.0, 20.0, 200.0}) {
        SCOPED_TRACE(fmt::format("{} in {}, {} GB on the host", model, recipe, host));
        Config config = config_of(model);
        config.precision.recipe = recipe;
        const double resident = plan(config, {}).estimate.total();
        MemoryPlan before = plan(config, {static_cast<std::int64_t>(resident) + 1, as_bytes(host)});
        EXPECT_TRUE(recomputes(before, config, Recompute::none));
        EXPECT_EQ(before.host_moments, 0);
        int mixed = 0;
        for (double device = resident - kGb; device > 0.3 * resident; device -= 0.03 * resident) {
          const MemoryPlan made = plan(config, {static_cast<std::int64_t>(device), as_bytes(host)});
          EXPECT_EQ(made.fits(), made.estimate.total() <= device && made.estimate.host <= host * kGb);
          EXPECT_LE(made.fits(), before.fits());
          for (std::int64_t block = 0; block < config.model.blocks(); ++block)
            EXPECT_GE(made.recompute.of(block, '?'), before.recompute.of(block, '?')) << block;
          if (made.fits() && !recomputes(made, config, before.recompute)) ++mixed;
          before = made;
        }
        EXPECT_GT(mixed, 2) << "sizes between no recomputation and all";
        EXPECT_FALSE(before.fits());
      }
}

TEST(MemoryPlan, RecomputesNoMoreBlocksThanItMust) {
  const Config config = config_of("llama3-8b");
  const double device = plan(config, {}).estimate.total() - 70 * kGb;
  const MemoryPlan made = plan(config, {static_cast<std::int64_t>(device), as_bytes(100)});
  std::vector<Keep> blocks;
  std::size_t last = 0;
  for (const char letter : config.model.pattern) {
    blocks.push_back(made.recompute.of(std::ssize(blocks), letter));
    if (blocks.back() == Keep::nothing) last = blocks.size() - 1;
  }
  MemoryCase c = memory_case(config);
  c.host_moments = made.host_moments;
  const auto needed = [&] {
    c.recompute = RecomputePlan(blocks);
    return estimate_memory(config.model, Recipe(config.precision, config.model.blocks()), c,
                           memory_traits("cuda"))
        .total();
  };
  EXPECT_DOUBLE_EQ(needed(), made.estimate.total());
  blocks[last] = Keep::all;
  EXPECT_GT(needed(), device);
}

/// The kinds of blocks in the order in which they begin to be recomputed.
TEST(MemoryPlan, BeginsWithWhatCostsLeastForEachGb) {
  Config config = config_of("nemotron-h-12b");
  config.precision.recipe = "bf16";
  config.train.memory.moments = "device";
  const double resident = plan(config, {}).estimate.total();
  std::vector<std::string> seen;
  for (double device = resident;; device -= kGb) {
    const MemoryPlan made = plan(config, {static_cast<std::int64_t>(device), {}});
    if (!made.fits()) break;
    for (std::size_t i = 0; i < config.model.pattern.size(); ++i) {
      const Keep keep = made.recompute.of(static_cast<std::int64_t>(i), config.model.pattern[i]);
      const std::string kind = keep == Keep::products ? "cheap" : std::string(1, config.model.pattern[i]);
      if (keep != Keep::all && std::ranges::find(seen, kind) == seen.end()) seen.push_back(kind);
    }
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"cheap", "M", "-", "*"}));
}

TEST(MemoryPlan, MovesNoMoreMomentsThanItMust) {
  const Config config = config_of("llama3-8b", "none");
  const double resident = plan(config, {}).estimate.total();
  const MemoryPlan made = plan(config, {static_cast<std::int64_t>(resident - 10 * kGb), as_bytes(100)});
  constexpr double kLargestTensor = 8.0 * 128256 * 4096;
  constexpr double kStaging = 0.5 * kGb;
  EXPECT_GE(made.estimate.host, 10 * kGb);
  EXPECT_LE(made.estimate.host, 10 * kGb + kStaging + kLargestTensor);
  EXPECT_DOUBLE_EQ(made.estimate.host, static_cast<double>(made.host_moments));
}

TEST(MemoryPlan, DoesWhatItIsTold) {
  Config config = config_of("llama-162m", "cheap");
  const Room room = {as_bytes(140), as_bytes(100)};
  EXPECT_EQ(plan(config, room).host_moments, 0);
  config.train.memory.moments = "host";
  const MemoryPlan all = plan(config, room);
  EXPECT_TRUE(recomputes(all, config, Recompute::cheap));
  EXPECT_GT(all.estimate.host, 0.999 * 8 * static_cast<double>(parameter_count(config.model)));  // norms stay
  config.train.memory.moments = "device";
  EXPECT_EQ(plan(config, {1, as_bytes(100)}).host_moments, 0);
}

TEST(MemoryPlan, SaysWhatItCosts) {
  Config config = config_of("llama3-8b", "none");
  const double resident = plan(config, {}).estimate.total();
  const MemoryPlan moved = plan(config, {static_cast<std::int64_t>(resident - 30 * kGb), as_bytes(100)});
  EXPECT_DOUBLE_EQ(moved.transfer_seconds, moved.estimate.host / memory_traits("cuda").host_bandwidth);
  const double gigabytes = moved.estimate.host / kGb;
  const std::string without_time =
      fmt::format("{:.1f} GB pinned on the host: {:.1f} GB each way per step, {:.2g} s", gigabytes, gigabytes,
                  moved.transfer_seconds);
  EXPECT_TRUE(describe(moved, config.model).ends_with(without_time + "; recompute none"))
      << describe(moved, config.model);
  EXPECT_TRUE(describe(moved, config.model, 200 * moved.transfer_seconds)
                  .ends_with(without_time + " = 0.5 % of it; recompute none"));

  config.train.recompute = "full";
  const MemoryPlan full = plan(config, {});
  EXPECT_DOUBLE_EQ(full.recomputed, recomputed_flops_per_token(config.model, 8192, Recompute::full) /
                                        training_flops_per_token(config.model, 8192));
  EXPECT_EQ(describe(full, config.model),
            fmt::format("moments on the device; recompute full: {:.2g} % more FLOP", 100 * full.recomputed));
  config.train.memory.moments = "host";
  EXPECT_EQ(plan_memory(config, memory_traits("cpu"), {}).transfer_seconds, 0) << "the host is the device";
}

TEST(MemoryPlan, SaysWhatIsMissingAndWhatWouldFit) {
  Config config = config_of("llama3-8b", "none");
  config.train.memory.moments = "device";
  const MemoryTraits& traits = memory_traits("cuda");
  EXPECT_FALSE(shortage(config, traits, {as_bytes(1000), {}}));
  EXPECT_FALSE(shortage(config, traits, {}));
  const std::optional<std::string> moved = shortage(config, traits, {as_bytes(140), as_bytes(100)});
  ASSERT_TRUE(moved);
  EXPECT_NE(moved->find("train.memory=auto train.recompute=auto would fit"), std::string::npos) << *moved;
  const std::optional<std::string> nothing = shortage(config, traits, {as_bytes(20), as_bytes(10)});
  ASSERT_TRUE(nothing);
  EXPECT_NE(nothing->find("train.microbatch"), std::string::npos) << *nothing;
}

TEST(MemoryPlan, PlansForMachinesThatAreNotHere) {
  RunConfig run;
  EXPECT_FALSE(room_for(run, nullptr).device);
  run.gpu_memory = 80;
  run.host_memory = 200;
  const Room room = room_for(run, nullptr);
  EXPECT_EQ(room.device, as_bytes(80));
  EXPECT_EQ(room.host, as_bytes(200));
}

TEST(MemoryPlan, MomentsInBf16TakeHalfTheRoom) {
  Config config = config_of("llama3-8b", "none");
  config.train.memory.moments = "host";
  const MemoryPlan f32 = plan(config, {});
  config.optim.moments = "bf16";
  const MemoryPlan bf16 = plan(config, {});
  // Llama 3 8B: 6.98 billion weights of linear layers and 1.05 billion others.
  EXPECT_NEAR(static_cast<double>(bf16.host_moments) / static_cast<double>(f32.host_moments),
              (6.98 * 4 + 1.05 * 8) / (8.03 * 8), 0.001);
  EXPECT_EQ(f32.estimate.total(), bf16.estimate.total());  // what stays on the device is in f32
}

TEST(MomentsOnHost, AreWholeTensorsAndNoSmallOnes) {
  const std::vector<std::int64_t> sizes = {1 << 23, 512, 1 << 19, 1 << 22};
  EXPECT_EQ(moments_on_host(sizes, 0), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(moments_on_host(sizes, 1), (std::vector<bool>{true, false, false, false}));
  EXPECT_EQ(moments_on_host(sizes, (1 << 23) + 1), (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(moments_on_host(sizes, std::int64_t{1} << 40), (std::vector<bool>{true, false, true, true}));
}

TEST(MomentBytes, FollowTheTypesOfTheOptimizer) {
  EXPECT_EQ(moment_bytes(1000, DType::f32), 8000);
  EXPECT_EQ(moment_bytes(1000, DType::bf16), 4000);
  EXPECT_EQ(moment_type(DType::bf16, true), DType::bf16);
  EXPECT_EQ(moment_type(DType::bf16, false), DType::f32);
  EXPECT_EQ(moment_type(DType::f32, true), DType::f32);
}

}  // namespace
}  // namespace tetrad::testing::memory_plan_test
