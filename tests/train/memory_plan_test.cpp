// SPDX-License-Identifier: Apache-2.0
// Plans for memory: which is chosen as there is less of it, and that a run which moves things gives the same
// bits.
#include "tetrad/train/memory_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tetrad/backend/memory.h"
#include "tetrad/model/flops.h"
#include "tetrad/model/presets.h"
#include "tetrad/ops/adamw.h"
#include "tetrad/train/run_parts.h"

namespace tetrad::testing::memory_plan_test {
namespace {

constexpr double kGb = 1e9;
constexpr std::int64_t as_bytes(double gigabytes) { return static_cast<std::int64_t>(gigabytes * kGb); }

/// Steps of so many microbatches, in which moments are cheaper to move than anything is to recompute.
constexpr std::int64_t kMicrobatches = 32;

Config config_of(const char* model, const char* recompute = "auto") {
  Config config;
  config.model = *find_preset(model);
  config.precision.recipe = "nvfp4";
  config.train.batch = kMicrobatches;
  config.train.microbatch = 1;
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
    if (made.levers.recompute.of(block, letter) != expected.of(block, letter)) return false;
  }
  return true;
}

/// What a plan does, one word each: blocks by their letters.
std::set<std::string> things_done(const MemoryPlan& made, const std::string& pattern) {
  std::set<std::string> done;
  const auto note = [&](bool is_done, const std::string& name) {
    if (is_done) done.insert(name);
  };
  note(made.levers.attention_by_parts, "parts");
  note(made.estimate.residual_on_host > 0, "residual");
  note(made.host_moments > 0, "moments");
  note(made.levers.weights_as_codes, "codes");
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const Keep keep = made.levers.recompute.of(static_cast<std::int64_t>(i), pattern[i]);
    note(keep != Keep::all, keep == Keep::products ? "cheap" : std::string(1, pattern[i]));
  }
  return done;
}

TEST(MemoryPlan, TakesTheCheapestThatFits) {
  const Config config = config_of("llama3-8b");
  const double resident =
      plan(config, {}).estimate.total() / kGb;  // nobody knows what there is: nothing is moved
  struct Case {
    double missing, host;
    std::set<std::string> things;
    std::string recompute;
  };
  for (const Case& c :
       {Case{-1, 100, {}, "none"}, Case{1, 100, {"residual"}, "none"},
        Case{6, 100, {"residual", "moments"}, "none"}, Case{60, 100, {"residual", "moments"}, "none"},
        Case{90,
             100,
             {"residual", "moments", "cheap", "codes", "-"},
             "cheap in 5 of 32 feed-forward blocks, cheap in 5 of 32 attention blocks, full in 23 of 32 "
             "feed-forward blocks"},
        Case{20,
             0,
             {"cheap", "codes", "-"},
             "cheap in 5 of 32 feed-forward blocks, cheap in 5 of 32 attention blocks, full in 19 of 32 "
             "feed-forward blocks"}}) {
    const Room room{as_bytes(resident - c.missing), as_bytes(c.host)};
    const MemoryPlan made = plan(config, room);
    EXPECT_EQ(things_done(made, config.model.pattern), c.things) << c.missing;
    EXPECT_EQ(made.levers.recompute.describe(config.model.pattern), c.recompute) << c.missing;
    EXPECT_EQ(made.is_plain(), c.things.empty());
    EXPECT_LE(made.estimate.total(), (resident - c.missing) * kGb);
    EXPECT_LE(made.estimate.host(), c.host * kGb);
    EXPECT_FALSE(shortage(config, memory_traits("cuda"), room));
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
          EXPECT_EQ(made.fits(), made.estimate.total() <= device && made.estimate.host() <= host * kGb);
          EXPECT_LE(made.fits(), before.fits());
          for (std::int64_t block = 0; block < config.model.blocks(); ++block)
            EXPECT_GE(made.levers.recompute.of(block, '?'), before.levers.recompute.of(block, '?')) << block;
          if (made.fits() && !recomputes(made, config, before.levers.recompute)) ++mixed;
          before = made;
        }
        EXPECT_GT(mixed, 2) << "sizes between no recomputation and all";
        EXPECT_FALSE(before.fits());
      }
}

TEST(MemoryPlan, RecomputesNoMoreBlocksThanItMust) {
  const Config config = config_of("llama3-8b");
  const double device = plan(config, {}).estimate.total() - 90 * kGb;
  const MemoryPlan made = plan(config, {static_cast<std::int64_t>(device), as_bytes(100)});
  std::vector<Keep> blocks;
  std::size_t last = 0;
  for (const char letter : config.model.pattern) {
    blocks.push_back(made.levers.recompute.of(std::ssize(blocks), letter));
    if (blocks.back() == Keep::nothing) last = blocks.size() - 1;
  }
  MemoryCase c = memory_case(config, 1);
  c.levers = made.levers;
  c.host_moments = made.host_moments;
  const auto needed = [&] {
    c.levers.recompute = RecomputePlan(blocks);
    return estimate_memory(config.model, Recipe(config.precision, config.model.blocks()), c,
                           memory_traits("cuda"))
        .total();
  };
  EXPECT_DOUBLE_EQ(needed(), made.estimate.total());
  blocks[last] = Keep::all;
  EXPECT_GT(needed(), device);
}

/// In the order in which a plan begins to do them as there is less memory, or at the same size by name.
std::vector<std::string> order_of_steps(const Config& config, double host) {
  std::vector<std::string> seen;
  for (double device = plan(config, {}).estimate.total();; device -= 0.25 * kGb) {
    const MemoryPlan made = plan(config, {static_cast<std::int64_t>(device), as_bytes(host)});
    if (!made.fits()) return seen;
    for (const std::string& thing : things_done(made, config.model.pattern))
      if (std::ranges::find(seen, thing) == seen.end()) seen.push_back(thing);
  }
}

TEST(MemoryPlan, BeginsWithWhatCostsLeastForEachGb) {
  using Order = std::vector<std::string>;
  Config config = config_of("nemotron-h-12b");
  config.precision.recipe = "bf16";
  EXPECT_EQ(order_of_steps(config, 200), (Order{"residual", "moments", "cheap", "M", "-", "*", "parts"}));
  EXPECT_EQ(order_of_steps(config, 0), (Order{"cheap", "M", "-", "*", "parts"})) << "the host has no room";
  config.precision.recipe = "nvfp4";
  EXPECT_EQ(order_of_steps(config, 200),
            (Order{"residual", "moments", "cheap", "codes", "M", "-", "*", "parts"}));
}

/// Moments go over the bus once in a step: the shorter it is, the dearer they are.
TEST(MemoryPlan, MovesMomentsLaterWhereStepsAreShort) {
  using Order = std::vector<std::string>;
  Config config = config_of("llama3-8b");
  for (const auto& [microbatches, order] :
       {std::pair(32, Order{"residual", "moments", "cheap", "codes", "-", "*", "parts"}),
        std::pair(16, Order{"residual", "cheap", "codes", "moments", "-", "*", "parts"}),
        std::pair(1, Order{"residual", "cheap", "codes", "-", "*", "parts", "moments"})}) {
    config.train.batch = microbatches;
    EXPECT_EQ(order_of_steps(config, 200), order) << microbatches;
  }
}

/// A GB of the host is a GB less on the device, whatever lies there.
TEST(MemoryPlan, TakesNoMoreOfTheHostThanItHas) {
  const Config config = config_of("llama3-8b");
  const auto needed = static_cast<std::int64_t>(plan(config, {}).estimate.total());
  for (const double host : {0.0, 2.0, 5.0, 40.0}) {
    const MemoryPlan made = plan(config, {needed - as_bytes(25), as_bytes(host)});
    EXPECT_TRUE(made.fits()) << host;
    EXPECT_LE(made.estimate.host(), host * kGb);
    EXPECT_EQ(made.levers.residual_on_host, host > 4.16) << "62 matrices of 8192 by 4096";
  }
}

TEST(MemoryPlan, MovesNoMoreMomentsThanItMust) {
  Config config = config_of("llama3-8b", "none");
  config.train.memory.residual = "device";
  const double resident = plan(config, {}).estimate.total();
  const MemoryPlan made = plan(config, {static_cast<std::int64_t>(resident - 10 * kGb), as_bytes(100)});
  constexpr double kLargestTensor = 8.0 * 128256 * 4096;
  constexpr double kStaging = 0.5 * kGb;
  EXPECT_GE(made.estimate.host(), 10 * kGb);
  EXPECT_LE(made.estimate.host(), 10 * kGb + kStaging + kLargestTensor);
  EXPECT_DOUBLE_EQ(made.estimate.moments_on_host, static_cast<double>(made.host_moments));
}

TEST(MemoryPlan, DoesWhatItIsTold) {
  Config config = config_of("llama-162m", "cheap");
  const Room room = {as_bytes(140), as_bytes(100)};
  EXPECT_EQ(plan(config, room).host_moments, 0);
  config.train.memory.moments = "host";
  const MemoryPlan all = plan(config, room);
  EXPECT_TRUE(recomputes(all, config, Recompute::cheap));
  EXPECT_GT(all.estimate.host(),
            0.999 * 8 * static_cast<double>(parameter_count(config.model)));  // norms stay
  config.train.memory = {"device", "values", "device"};
  const MemoryPlan device = plan(config, {1, as_bytes(100)});
  EXPECT_EQ(device.estimate.host(), 0);
  EXPECT_FALSE(device.levers.weights_as_codes);
  EXPECT_FALSE(device.fits());
  config.train.memory = {"device", "codes", "host"};
  const MemoryPlan moved = plan(config, room);
  EXPECT_TRUE(moved.levers.weights_as_codes);
  EXPECT_GT(moved.estimate.residual_on_host, 0);
  EXPECT_EQ(moved.host_moments, 0);
}

TEST(MemoryPlan, SaysWhatItCosts) {
  Config config = config_of("llama3-8b", "none");
  config.train.memory.residual = "device";
  const double resident = plan(config, {}).estimate.total();
  const MemoryPlan moved = plan(config, {static_cast<std::int64_t>(resident - 30 * kGb), as_bytes(100)});
  EXPECT_DOUBLE_EQ(moved.transfer_seconds,
                   moved.estimate.moments_on_host / memory_traits("cuda").host_bandwidth);
  const double gigabytes = moved.estimate.moments_on_host / kGb;
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
  config.train.memory = {"device", "codes", "host"};
  EXPECT_EQ(
      describe(plan(config, {}), config.model),
      fmt::format("moments on the device; residual stream on the host, 4.2 GB pinned; weights as codes; "
                  "recompute full: {:.2g} % more FLOP",
                  100 * full.recomputed));
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
