// SPDX-License-Identifier: Apache-2.0
// Training with AdamW's moments in BF16: what is stored, that runs repeat to the bit, how f32 moments become
// BF16, and that the loss does not suffer.

#include <cmath>

#include "support/training.h"
#include "tetrad/io/safetensors.h"

namespace tetrad::testing::train_moments_test {
namespace {

/// Wide enough for moments that are worth moving to the host.
constexpr const char* kLlama =
    "model: {pattern: \"*-*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 4096, vocab: 64, tied: "
    "false}\n";
constexpr const char* kSmall =
    "model: {pattern: \"*-*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 48, vocab: 64, tied: "
    "true}\n";
constexpr const char* kHybrid =
    "model: {pattern: \"M-*-\", hidden: 32, heads: 2, kv_heads: 2, head_dim: 16, ffn: 64, activation: "
    "squared_relu, vocab: 64, tied: false, rope: none, mamba: {heads: 4, head_dim: 16, groups: 2, state: 15, "
    "chunk: 8}}\n";

class Bf16Moments : public Training {
 protected:
  Words run(const char* model, const std::string& out, Words more = {}) {
    more.insert(more.begin(), "optim.moments=bf16");
    return arguments(model, "nvfp4", out, std::move(more));
  }

  void train(const Words& words) {
    const Outcome outcome = run_tetrad(words);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }

  DType type_in(const std::string& run, const std::string& tensor, std::int64_t step = kSteps) {
    const SafetensorsFile file(folder_ / run / "checkpoints" / ("step-" + std::to_string(step)) /
                               "optimizer.safetensors");
    const TensorInfo* info = file.find(tensor);
    if (info == nullptr) throw std::runtime_error("no tensor " + tensor);
    return info->dtype;
  }

  double loss_of(const std::string& run) {
    double loss = NAN;
    for (const nlohmann::json& line : metrics(run))
      if (line["kind"] == "eval" && line["source"] == "a") loss = line["loss"].get<double>();
    return loss;
  }
};

TEST_F(Bf16Moments, AreThoseOfLinearLayersAlone) {
  train(run(kHybrid, "run"));
  for (const char* moment : {".first", ".second"}) {
    for (const char* name : {"blocks.0.in.weight", "blocks.0.out.weight", "blocks.1.up.weight",
                             "blocks.1.down.weight", "blocks.2.qkv.weight", "blocks.2.out.weight"})
      EXPECT_EQ(type_in("run", std::string(name) + moment), DType::bf16) << name;
    for (const char* name : {"embedding.weight", "head.weight", "norm.weight", "blocks.0.conv.weight",
                             "blocks.0.a_log", "blocks.1.norm.weight"})
      EXPECT_EQ(type_in("run", std::string(name) + moment), DType::f32) << name;
  }
}

TEST_F(Bf16Moments, RepeatToTheBit) {
  train(run(kLlama, "whole", {"run.threads=1", "train.memory=device"}));
  train(run(kLlama, "threads", {"run.threads=2", "train.memory=host"}));
  expect_same_run("whole", "threads");

  Words words = run(kLlama, "killed");
  for (const char* where : {"metrics.write=kill@8", "checkpoint.after_rename=kill"}) {
    ASSERT_EQ(run_tetrad(words, {std::string("TETRAD_FAILPOINTS=") + where}).exit_code, -1);
    words = {"train", "--resume", folder_.file("killed")};
  }
  finish("killed");
  expect_same_run("whole", "killed");
}

TEST_F(Bf16Moments, FollowTheSeedOfRounding) {
  train(arguments(kSmall, "bf16", "one", {"optim.moments=bf16"}));
  train(arguments(kSmall, "bf16", "other", {"optim.moments=bf16", "train.seeds.rounding=4"}));
  EXPECT_FALSE(final_state("one") == final_state("other"));
}

// The first update finds zeros, and weights do not see how its moments are then stored: so a branch after it
// is the run that had moments in BF16 from the beginning.
TEST_F(Bf16Moments, OfABranchAreThoseOfTheTrunkRounded) {
  const Words often = {"train.checkpoint.every=1", "train.checkpoint.keep=20"};
  train(run(kHybrid, "expected", often));
  train(arguments(kHybrid, "nvfp4", "trunk", often));
  EXPECT_EQ(type_in("trunk", "blocks.1.up.weight.first", 1), DType::f32);
  const Outcome branch = run_tetrad({"train", "--branch", folder_.file("trunk/checkpoints/step-1"), "--out",
                                     folder_.file("branch"), "optim.moments=bf16"});
  ASSERT_EQ(branch.exit_code, 0) << branch.err;
  EXPECT_NE(branch.err.find("optim.moments from f32 to bf16"), std::string::npos) << branch.err;
  EXPECT_TRUE(final_state("branch", 1) == final_state("expected", 1));
  EXPECT_TRUE(final_state("branch") == final_state("expected"));
}

TEST_F(Bf16Moments, ChangeOnlyWhereItIsSaid) {
  Words start = arguments(kSmall, "bf16", "run", {});
  ASSERT_EQ(run_tetrad(start, {"TETRAD_FAILPOINTS=metrics.write=kill@8"}).exit_code, -1);
  const Words resume = {"train", "--resume", folder_.file("run"), "optim.moments=bf16"};
  const Outcome refused = run_tetrad(resume);
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_NE(refused.err.find("optim.moments is bf16 now, and was f32 when the run began"), std::string::npos)
      << refused.err;

  Words changed = resume;
  changed.emplace_back("--change");
  train(changed);
  EXPECT_EQ(type_in("run", "blocks.1.up.weight.first"), DType::bf16);
  // Back again: nothing is lost by it.
  train({"train", "--branch", folder_.file("run"), "--out", folder_.file("wide"), "optim.moments=f32",
         "train.steps=14"});
  EXPECT_EQ(type_in("wide", "blocks.1.up.weight.second", 14), DType::f32);
}

TEST_F(Bf16Moments, AreShownByADryRun) {
  Words words = run(kSmall, "run");
  words.emplace_back("--dry-run");
  const Outcome shown = run_tetrad(words);
  EXPECT_NE(shown.out.find("moments of linear layers in BF16"), std::string::npos) << shown.out << shown.err;
}

// The same data and first weights, so that what differs is the rounding of moments: that moves the loss less
// than another order of the data does.
TEST_F(Bf16Moments, LearnAsWellAsF32) {
  const Words longer = {"train.steps=150", "train.checkpoint=0", "optim.beta2=0.999", "optim.lr=0.01"};
  const auto train_one = [&](const std::string& out, const Words& changes) {
    Words words = longer;
    words.insert(words.end(), changes.begin(), changes.end());
    train(arguments(kSmall, "bf16", out, words));
    return loss_of(out);
  };
  const double f32 = train_one("f32", {});
  const double bf16 = train_one("bf16", {"optim.moments=bf16"});
  double noise = 0;
  for (const char* seed : {"5", "6", "7"})
    noise = std::max(
        noise,
        std::abs(train_one(std::string("f32-") + seed, {std::string("train.seeds.data=") + seed}) - f32));
  EXPECT_LT(f32, 3.5);  // of 4.16 before training: it learns
  EXPECT_LT(std::abs(bf16 - f32), noise) << f32 << " " << bf16;
}

}  // namespace
}  // namespace tetrad::testing::train_moments_test
