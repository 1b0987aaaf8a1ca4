// SPDX-License-Identifier: Apache-2.0
#include "tetrad/recipe/resolve.h"

#include <gtest/gtest.h>

#include "tetrad/recipe/recipe.h"

namespace tetrad::testing::resolve_test {
namespace {

using Words = std::vector<std::string>;
constexpr std::int64_t kBlocks = 12;

PrecisionConfig of_recipe(const std::string& name) {
  PrecisionConfig config;
  config.recipe = name;
  return config;
}

/// At every block and at all times.
void expect_same_precision(const PrecisionConfig& a, const PrecisionConfig& b) {
  const Recipe one(a, kBlocks);
  const Recipe other(b, kBlocks);
  for (std::int64_t block = 0; block < kBlocks; ++block)
    for (const double progress : {0.0, 0.4, 0.6, 0.99})
      EXPECT_TRUE(one.at({"blocks.0.qkv", block}, progress).operands ==
                  other.at({"blocks.0.qkv", block}, progress).operands)
          << "block " << block << " at " << progress;
}

TEST(ResolvedPrecision, SaysWhatTheRecipeChooses) {
  const PrecisionConfig nvfp4 = resolved(of_recipe("nvfp4"), kBlocks);
  EXPECT_EQ(nvfp4.high_precision.first, 0);
  EXPECT_EQ(nvfp4.high_precision.last, 2);  // 15 % of 12, rounded up
  EXPECT_EQ(nvfp4.sr, Words{"gradients"});
  EXPECT_EQ(nvfp4.sr_hardware, false);
  EXPECT_EQ(nvfp4.weights_2d, true);
  EXPECT_EQ(nvfp4.rht.gemms, Words{"wgrad"});
  EXPECT_EQ(nvfp4.rht.size, 16);
  EXPECT_EQ(nvfp4.rht.signs, "fixed");
  EXPECT_EQ(nvfp4.scale, (ScaleConfig{"nearest", "nearest", {}}));
  const PrecisionConfig tetrad = resolved(of_recipe("tetrad"), kBlocks);
  EXPECT_EQ(tetrad.weights_2d, false);
  EXPECT_EQ(tetrad.scale, (ScaleConfig{"search", "nearest", {}}));
  PrecisionConfig eden = of_recipe("nvfp4");
  eden.scale.backward = "eden";
  eden = resolved(eden, kBlocks);
  EXPECT_EQ(eden.sr, Words{});
  EXPECT_EQ(eden.rht, (RhtConfig{Words{"dgrad", "wgrad"}, {}, "fresh"}));
  EXPECT_EQ(eden.source, "fprop");
  const PrecisionConfig mxfp4 = resolved(of_recipe("mxfp4"), kBlocks);
  EXPECT_EQ(mxfp4.rht.size, 32);
  EXPECT_EQ(mxfp4.weights_2d, false);
  EXPECT_EQ(mxfp4.scale, (ScaleConfig{{}, {}, "up"}));
  const PrecisionConfig fp8 = resolved(of_recipe("fp8"), kBlocks);
  EXPECT_EQ(fp8.high_precision.first, 1);
  EXPECT_EQ(fp8.high_precision.last, 2);
  EXPECT_EQ(fp8.sr, Words{});
  EXPECT_EQ(fp8.rht.gemms, Words{});
}

TEST(ResolvedPrecision, IsTheSamePrecision) {
  for (const std::string_view name : kRecipeNames) {
    SCOPED_TRACE(name);
    PrecisionConfig config = of_recipe(std::string(name));
    expect_same_precision(resolved(config, kBlocks), config);
    PrecisionConfig eden = config;
    eden.scale.backward = "eden";
    expect_same_precision(resolved(eden, kBlocks), eden);
    for (const std::string_view later : kRecipeNames) {
      SCOPED_TRACE(later);
      config.schedule = {{.at = 0.5, .forward = std::string(later), .backward = std::nullopt},
                         {.at = 0.9, .forward = std::nullopt, .backward = "bf16"}};
      expect_same_precision(resolved(config, kBlocks), config);
      EXPECT_EQ(resolved(config, kBlocks).schedule[0].backward, name);
      EXPECT_EQ(resolved(config, kBlocks).schedule[1].forward, later);
    }
  }
}

TEST(ResolvedPrecision, KeepsWhatWasSaid) {
  PrecisionConfig config = of_recipe("nvfp4");
  config.sr = Words{"weights"};
  config.rht.gemms = Words{};
  config.high_precision.last = 1;
  const PrecisionConfig result = resolved(config, kBlocks);
  EXPECT_EQ(result.sr, config.sr);
  EXPECT_EQ(result.rht.gemms, config.rht.gemms);
  EXPECT_EQ(result.high_precision.last, 1);
  EXPECT_EQ(result.high_precision.first, 0);
  EXPECT_EQ(resolved(result, kBlocks), result);
}

TEST(ResolvedPrecision, StaysOpenWhereThereIsNoOneChoice) {
  EXPECT_EQ(resolved(of_recipe("bf16"), kBlocks), of_recipe("bf16"));
  PrecisionConfig config = of_recipe("nvfp4");
  config.schedule = {{.at = 0.5, .forward = "fp8", .backward = std::nullopt}};
  const PrecisionConfig result = resolved(config, kBlocks);
  EXPECT_FALSE(result.high_precision.first) << "0 and 1";
  EXPECT_EQ(result.high_precision.last, 2) << "of both";
  EXPECT_FALSE(result.sr);
}

}  // namespace
}  // namespace tetrad::testing::resolve_test
