// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/plan.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/errors.h"
#include "tetrad/compare/runner.h"
#include "tetrad/compare/trials.h"
#include "tetrad/config/config.h"

namespace tetrad::testing {
namespace {

TEST(RemainingTime, MovesWithinARun) {
  EXPECT_DOUBLE_EQ(remaining_seconds(2, 0, 50, 100), 300);
  EXPECT_DOUBLE_EQ(remaining_seconds(2, 30, 50, 100), 270);
  EXPECT_DOUBLE_EQ(remaining_seconds(2, 130, 50, 100), 200);  // it will not end in the past
  EXPECT_DOUBLE_EQ(remaining_seconds(2, 130, 50, 0), 0);
}

constexpr const char* kDataAndLength =
    "data: {sources: {a: {path: a}}}\n"
    "train: {steps: 40, batch: 4, sequence: 32, seed: 7}\n";
const std::string common_config =
    std::string(
        "model: {pattern: '*-', hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 48, vocab: 64, tied: "
        "true}\n") +
    kDataAndLength;

TEST(ComparePlan, OfRecipes) {
  const ComparePlan plan = read_plan("bf16,nvfp4");
  ASSERT_EQ(plan.arms.size(), 2U);
  EXPECT_EQ(plan.arms[0].name, "bf16");
  EXPECT_EQ(plan.arms[1].overrides, std::vector<std::string>{"precision.recipe=nvfp4"});
  EXPECT_EQ(plan.seeds, 1);
}

TEST(ComparePlan, OfAFile) {
  const ComparePlan plan = parse_plan(
      "seeds: 3\nmargin: 0.5\nlr_factors: [0.5, 1]\n"
      "arms: {bf16: {precision: bf16}, no-rht: {precision.rht: none, precision.sr: [gradients]}}\n"
      "mixes: {plain: {}, more-a: {data.phases: [{until: 1, mix: {a: 1}}]}}\n",
      "plan.yaml");
  EXPECT_EQ(plan.seeds, 3);
  EXPECT_EQ(plan.margin, 0.5);
  EXPECT_EQ(plan.lr_factors, (std::vector<double>{0.5, 1}));
  EXPECT_EQ(plan.arms[1].overrides,
            (std::vector<std::string>{"precision.rht=none", "precision.sr=[gradients]"}));
  ASSERT_EQ(plan.mixes.size(), 2U);
  EXPECT_EQ(parse_plan(to_yaml(plan), "again"), plan);
}

TEST(ComparePlan, OurOwnFilesAreUsable) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TETRAD_CONFIGS "/compare")) {
    SCOPED_TRACE(entry.path());
    const ComparePlan plan = read_plan(entry.path().string());
    // Trunks have the reference's precision, and a late switch leaves one that is NVFP4.
    const bool is_switch = entry.path().filename() == "late-switch-branches.yaml";
    EXPECT_EQ(plan.arms[0].name, is_switch ? "never" : "bf16");
    // A model whose widths are multiples of every transform's size.
    const Comparison comparison = expand(plan, std::string("model: llama-162m\n") + kDataAndLength);
    // No two arms are the same by mistake.
    for (std::size_t i = 0; i < plan.arms.size(); ++i)
      for (std::size_t k = 0; k < i; ++k)
        EXPECT_FALSE(differences(comparison.trials[i].config, comparison.trials[k].config).empty())
            << plan.arms[i].name << " and " << plan.arms[k].name;
    ++files;
  }
  EXPECT_GE(files, 6);
}

TEST(ComparePlan, WhatMakesNoSenseIsRefused) {
  const auto refuse = [](const std::string& yaml, const std::vector<std::string>& words) {
    expect_bad_input([&] { expand(parse_plan(yaml, "plan.yaml"), common_config); }, words, yaml);
  };
  refuse("arms: {a: {train.steps: 3}}", {"plan.yaml:1", "train.steps", "only precision"});
  refuse("arms: {a: {optim.lr: 1}}", {"plan.yaml:1", "optim.lr", "only precision and optim.moments"});
  refuse("arms: {a: {optim: {moments: bf16, lr: 1}}}", {"optim.lr", "only precision and optim.moments"});
  refuse("arms: {a: {optim: 1}}", {"optim", "only precision and optim.moments"});
  refuse("arms: {a: {optim.moments: fp4}}", {"optim.moments", "bf16"});
  refuse("arms: {a: {precision.rth: none}}", {"precision.rth"});
  refuse("arms: {../a: {}}", {"../a", "folder"});
  refuse("arms: {}", {"names"});
  refuse("seeds: 2", {"arms"});
  refuse("arms: {a: {}}\nseeds: 0", {"seeds", "above 0"});
  refuse("arms: {a: {}}\nseeds: 1.5", {"seeds", "whole"});
  refuse("arms: {a: {}}\nseeds: 100000", {"seeds", "1000"});
  refuse("arms: {a: {}}\nmargin: nan", {"margin"});
  refuse("arms: {a: {}}\nlr_factors: []", {"lr_factors"});
  refuse("arms: {a: {}}\nmixes: {m: {train.batch: 3}}", {"train.batch", "only data"});
  refuse("arms: {a: {}}\narmz: {}", {"armz"});
  expect_bad_input([] { read_plan("bf16,,nvfp4"); }, {"--arms"});
  expect_bad_input([] { expand(read_plan("bf16,fp4"), common_config); }, {"fp4", "nvfp4"});
  expect_bad_input([] { read_plan("bf16,bf16"); }, {"two arms", "bf16"});
}

TEST(Trials, ArePairsThatDifferInTheirPrecisionAlone) {
  ComparePlan plan = read_plan("bf16,nvfp4");
  plan.seeds = 2;
  plan.lr_factors = {1, 2};
  const Comparison comparison = expand(plan, common_config);
  ASSERT_EQ(comparison.trials.size(), 8U);
  for (std::size_t i = 0; i < 8; i += 2) {
    EXPECT_EQ(differences(comparison.trials[i].config, comparison.trials[i + 1].config),
              std::vector<std::string>{"precision.recipe"});
  }
  EXPECT_EQ(comparison.trials[0].seed, 7U);
  EXPECT_EQ(comparison.trials[7].seed, 8U);
  EXPECT_EQ(comparison.trials[7].config.optim.lr, 2 * comparison.trials[0].config.optim.lr);
  EXPECT_EQ(comparison.trials[7].folder, "runs/nvfp4/seed-8-lr-2");
  ASSERT_EQ(comparison.lock.differences.size(), 1U);
  EXPECT_EQ(comparison.lock.differences[0].values, (std::vector<std::string>{"bf16", "nvfp4"}));
  EXPECT_EQ(comparison.lock.common_sha256, expand(read_plan("bf16,fp8"), common_config).lock.common_sha256);
  EXPECT_NE(
      comparison.lock.common_sha256,
      expand(read_plan("bf16,nvfp4"), std::string(common_config) + "optim: {lr: 1}\n").lock.common_sha256);
}

TEST(Trials, MayDifferInHowMomentsAreStored) {
  for (const char* arm : {"{optim.moments: bf16}", "{optim: {moments: bf16}}"}) {
    const ComparePlan plan = parse_plan(std::string("arms: {f32: {}, bf16: ") + arm + "}", "plan.yaml");
    EXPECT_EQ(plan.arms[1].overrides, std::vector<std::string>{"optim.moments=bf16"});
    EXPECT_EQ(parse_plan(to_yaml(plan), "again"), plan);
    const Comparison comparison = expand(plan, common_config);
    ASSERT_EQ(comparison.lock.differences.size(), 1U);
    EXPECT_EQ(comparison.lock.differences[0].key, "optim.moments");
    EXPECT_EQ(comparison.lock.differences[0].values, (std::vector<std::string>{"f32", "bf16"}));
    EXPECT_TRUE(identical_arms(comparison).empty());
  }
}

TEST(ComparePlan, WindowsTrunksAndLooksAreStated) {
  ComparePlan plan = parse_plan(
      "arms: {a: {}, b: {precision: bf16}}\ntrunk_steps: 10\nlooks: 2\nwindows: {first: 5, last: 0.2, "
      "primary: "
      "first}\n",
      "plan.yaml");
  EXPECT_EQ(plan.windows, (Windows{5, 0.2, "first"}));
  plan.looked = {3, 6};
  plan.probes = {"gradients", "checks"};
  plan.light = true;
  EXPECT_EQ(parse_plan(to_yaml(plan), "again"), plan);
  plan.trunk_steps = 0;
  plan.trunks = {{{"run", 10, "hash", "/a \"b\": c"}, 7}};
  EXPECT_EQ(parse_plan(to_yaml(plan), "again"), plan);
  EXPECT_EQ(plan.pairs(), 1);

  const Comparison comparison =
      expand(parse_plan("arms: {a: {}, b: {precision: bf16}}\ntrunk_steps: 10\nseeds: 2\n"
                        "lr_factors: [1, 2]",
                        "plan.yaml"),
             common_config);
  ASSERT_EQ(comparison.trunks.size(), 4U);
  EXPECT_EQ(comparison.trunks[3].folder, "trunks/seed-8-lr-2");
  EXPECT_EQ(comparison.trials[6].trunk, 3U);
  EXPECT_EQ(comparison.trunks[3].config.precision, comparison.trials[6].config.precision);
  EXPECT_EQ(comparison.trials[6].config.train.steps, 40);
  EXPECT_EQ(comparison.trials[6].config.train.eval.every, 3);

  const auto refuse = [](const std::string& yaml, const std::vector<std::string>& words) {
    expect_bad_input([&] { expand(parse_plan(yaml, "plan.yaml"), common_config); }, words, yaml);
  };
  refuse("arms: {a: {}}\ntrunk_steps: 40", {"trunks of 40 steps"});
  refuse("arms: {a: {}}\nwindows: {primary: first}", {"need trunks"});
  refuse("arms: {a: {}}\nwindows: {primary: second}", {"primary", "heldout"});
  refuse("arms: {a: {}}\nwindows: {last: 2}", {"last"});
  refuse("arms: {a: {}}\nlooks: 0", {"looks"});
  refuse("arms: {a: {}}\nprobes: [everything]", {"probes", "gradients", "none"});
  refuse("arms: {a: {}}\ntrunks: [{run: x, step: 1, sha256: y, seed: 1}]", {"checkpoint", "missing"});
}

TEST(Trials, HaveSamplesForCurves) {
  const Comparison comparison = expand(read_plan("bf16"), common_config);
  EXPECT_EQ(comparison.trials[0].config.train.eval.every, 4);
  EXPECT_EQ(comparison.trials[0].config.train.telemetry_every, 4);
}

}  // namespace
}  // namespace tetrad::testing
