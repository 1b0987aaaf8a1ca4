// SPDX-License-Identifier: Apache-2.0
// Plans for memory: which is chosen as there is less of it, and that a run which moves things gives the same
// bits.
#include "tetrad/train/memory_plan.h"

#include <gtest/gtest.h>

#include "tetrad/backend/memory.h"
#include "tetrad/model/presets.h"
#include "tetrad/ops/adamw.h"

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

TEST(MemoryPlan, TakesTheCheapestThatFits) {
  const Config config = config_of("llama3-8b");
  const double resident =
      plan(config, {}).estimate.total() / kGb;  // nobody knows what there is: nothing is moved
  struct Case {
    double device, host;
    Recompute recompute;
    bool moves;
  };
  for (const Case& c :
       {Case{resident + 1, 100, Recompute::none, false}, Case{resident - 1, 100, Recompute::none, true},
        Case{resident - 60, 100, Recompute::none, true}, Case{resident - 70, 100, Recompute::ffn, true},
        Case{resident - 20, 0, Recompute::full, false}}) {
    const MemoryPlan made = plan(config, {as_bytes(c.device), as_bytes(c.host)});
    EXPECT_EQ(made.recompute, c.recompute) << c.device;
    EXPECT_EQ(made.host_moments > 0, c.moves) << c.device;
    EXPECT_LE(made.estimate.total(), c.device * kGb);
    EXPECT_LE(made.estimate.host, c.host * kGb);
    EXPECT_FALSE(shortage(config, memory_traits("cuda"), {as_bytes(c.device), as_bytes(c.host)}));
  }
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
  EXPECT_EQ(all.recompute, Recompute::cheap);
  EXPECT_GT(all.estimate.host, 0.999 * 8 * static_cast<double>(parameter_count(config.model)));  // norms stay
  config.train.memory.moments = "device";
  EXPECT_EQ(plan(config, {1, as_bytes(100)}).host_moments, 0);
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
