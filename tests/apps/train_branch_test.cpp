// SPDX-License-Identifier: Apache-2.0
// Branches: runs that take over everything of another run's checkpoint, and go on.

#include <gtest/gtest.h>

#include <filesystem>

#include "support/process.h"
#include "support/training.h"

namespace tetrad::testing::train_branch_test {
namespace {

using Json = nlohmann::json;

constexpr const char* kLlama =
    "model: {pattern: \"*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 48, vocab: 64, tied: "
    "true}\n";
constexpr const char* kHybrid =
    "model: {pattern: \"M-*-\", hidden: 32, heads: 2, kv_heads: 2, head_dim: 16, ffn: 64, activation: "
    "squared_relu, vocab: 64, tied: false, rope: none, mamba: {heads: 4, head_dim: 16, groups: 2, state: 15, "
    "chunk: 8}}\n";
constexpr std::int64_t kBranchStep = 6;

class Branches : public Training {
 protected:
  void train_whole(const char* model, const std::string& recipe) {
    const Outcome whole = run_tetrad(arguments(model, recipe, "whole", {"train.checkpoint.keep=9"}));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
  }

  Words branch(const std::string& out, Words more = {}) {
    Words words = {"train", "--branch", folder_.file("whole/checkpoints/step-6"), "--out", folder_.file(out)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  /// What a run wrote about the steps after the branch.
  std::vector<Json> later_metrics(const std::string& run) {
    std::vector<Json> lines = metrics(run);
    std::erase_if(lines, [](const Json& line) { return line["step"] <= kBranchStep; });
    return lines;
  }

  void expect_same_end(const std::string& expected, const std::string& actual) {
    EXPECT_FALSE(later_metrics(expected).empty());
    EXPECT_EQ(later_metrics(actual), later_metrics(expected));
    EXPECT_TRUE(final_state(actual) == final_state(expected));
  }

  Json run_json(const std::string& run) { return Json::parse(read_file(folder_ / run / "run.json")); }
};

class UnchangedBranches : public Branches, public ::testing::WithParamInterface<Family> {};

TEST_P(UnchangedBranches, AreTheRunThatWasNeverBranched) {
  train_whole(GetParam().model, GetParam().recipe);
  const Outcome once = run_tetrad(branch("once"));
  ASSERT_EQ(once.exit_code, 0) << once.err;
  expect_same_end("whole", "once");

  // Killed before its first checkpoint, and on its way.
  EXPECT_EQ(run_tetrad(branch("killed"), {"TETRAD_FAILPOINTS=checkpoint.write=kill@2"}).exit_code, -1);
  EXPECT_EQ(
      run_tetrad({"train", "--resume", folder_.file("killed")}, {"TETRAD_FAILPOINTS=metrics.write=kill@9"})
          .exit_code,
      -1);
  finish("killed");
  expect_same_end("whole", "killed");
}

INSTANTIATE_TEST_SUITE_P(All, UnchangedBranches,
                         ::testing::Values(Family{"llama_bf16", kLlama, "bf16"},
                                           Family{"llama_nvfp4", kLlama, "nvfp4"},
                                           Family{"hybrid_bf16", kHybrid, "bf16"},
                                           Family{"hybrid_nvfp4", kHybrid, "nvfp4"}),
                         [](const auto& test) { return test.param.name; });

TEST_F(Branches, GoOnWithWhatWasChanged) {
  train_whole(kLlama, "bf16");
  const Words changes = {"precision.recipe=nvfp4", "optim.lr=1e-3", "train.steps=10"};
  for (const char* out : {"one", "two"}) {
    const Outcome outcome = run_tetrad(branch(out, changes));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  EXPECT_EQ(later_metrics("one"), later_metrics("two"));
  EXPECT_TRUE(final_state("one", 10) == final_state("two", 10));
  EXPECT_NE(later_metrics("one"), later_metrics("whole"));

  const Json parent = run_json("whole");
  const Json one = run_json("one");
  EXPECT_NE(one["id"], parent["id"]);
  EXPECT_NE(one["id"], run_json("two")["id"]);
  EXPECT_EQ(one["branch"]["run"], parent["id"]);
  EXPECT_EQ(one["branch"]["step"], kBranchStep);
  EXPECT_EQ(one["branch"]["sha256"].get<std::string>().size(), 64U);
  EXPECT_EQ(Json::parse(read_file(folder_ / "one/checkpoints/step-10/state.json"))["run"]["branch"],
            one["branch"]);
  std::vector<std::string> changed;
  for (const Json& line : metrics("one"))
    if (line["kind"] == "change" && line["step"] == kBranchStep) changed.push_back(line["what"]);
  EXPECT_EQ(changed, (std::vector<std::string>{"precision.recipe", "optim.lr", "train.steps"}));
  EXPECT_EQ(metrics("one")[0]["kind"], "branch");
  EXPECT_NE(read_file(folder_ / "one/log.txt").find("branches off from"), std::string::npos);

  // A run stands for its newest checkpoint, and a branch can be branched again and lose its marker.
  const Outcome again = run_tetrad(
      {"train", "--branch", folder_.file("one"), "--out", folder_.file("again"), "train.steps=12"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(run_json("again")["branch"]["step"], 10);
  std::filesystem::remove(folder_ / "again/run.json");
  finish("again");
  EXPECT_EQ(run_json("again")["branch"]["run"], one["id"]);
}

TEST_F(Branches, RefuseWhatWouldNotGoOn) {
  train_whole(kLlama, "bf16");
  const auto refuse = [&](const Words& words, const std::string& word) {
    const Outcome outcome = run_tetrad(words);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "never"));
  };
  refuse(branch("never", {"train.batch=8"}), "train.batch");
  refuse(branch("never", {"model.ffn=64"}), "model.ffn");
  refuse(branch("never", {"train.steps=3"}), "6 steps already");
  refuse(branch("never", {"--from", folder_.file("whole")}), "--from");
  refuse(branch("never", {"--resume", folder_.file("whole")}), "only one");
  refuse({"train", "--branch", folder_.file("whole"), "train.steps=20"}, "--out");
  // What was begun is not begun again.
  ASSERT_EQ(run_tetrad(branch("begun")).exit_code, 0);
  EXPECT_EQ(run_tetrad(branch("begun")).exit_code, 2);
  const Outcome goes_on = run_tetrad(branch("begun", {"--continue"}));
  EXPECT_EQ(goes_on.exit_code, 0) << goes_on.err;
}

}  // namespace
}  // namespace tetrad::testing::train_branch_test
