// SPDX-License-Identifier: Apache-2.0
// Commands on several ranks, and ranks that a command starts by itself.

#include "support/ranks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/training.h"

namespace tetrad::testing::ranks_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kModel =
    "model: {pattern: \"*-\", hidden: 48, heads: 3, kv_heads: 1, head_dim: 16, ffn: 80, vocab: 67, tied: "
    "true}\n";

class CommandRanks : public Training {
 protected:
  /// Four microbatches in as many groups.
  Words train(const std::string& out, const Words& more = {}) {
    Words words = {"train.microbatch=1", "train.groups=4", "run.threads=1"};
    words.insert(words.end(), more.begin(), more.end());
    return arguments(kModel, "nvfp4", out, words);
  }
  Words inspect(const Words& more = {}) {
    Words words = {"inspect", folder_.file("run"), "--precision", "nvfp4", "--batches",
                   "5",       "--backend",         "cpu",         "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words compare(const std::string& out, const Words& more = {}) {
    Words words = train(out, {"--arms", "bf16,nvfp4", "--seeds", "2", "--trunk-steps", "4"});
    words.front() = "compare";
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

/// Where an option starts ranks: PATH leads to the mpirun of the build.
Words path_to_mpirun() {
  const std::string folder = fs::path(TETRAD_MPIRUN).parent_path().string();
  return {"PATH=" + folder + ":" + std::getenv("PATH")};  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(CommandRanks, TrainStartsRanks) {
  ASSERT_EQ(run_tetrad(train("alone")).exit_code, 0);
  for (const Words& option : {Words{"--ranks", "2"}, Words{"--ranks=2"}}) {
    const Outcome two = run_tetrad(train("two" + std::to_string(option.size()), option), path_to_mpirun());
    ASSERT_EQ(two.exit_code, 0) << two.err;
    EXPECT_NE(two.err.find("2 ranks over mpi"), std::string::npos) << two.err;
    expect_same_run("alone", "two" + std::to_string(option.size()));
  }
  const Outcome one = run_tetrad(train("one", {"--ranks", "1"}), {"PATH=/nowhere"});
  EXPECT_EQ(one.exit_code, 0) << "one rank needs no mpirun: " << one.err;
}

TEST_F(CommandRanks, WhatCannotBeStartedIsSaid) {
  const auto expect_refused = [&](const Outcome& outcome, const std::string& what) {
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.err.find(what), std::string::npos) << outcome.err;
    EXPECT_FALSE(fs::exists(folder_ / "run"));
  };
  expect_refused(run_tetrad(train("run", {"--ranks", "2"}), {"PATH=/nowhere"}), "mpirun is not there");
  expect_refused(run_ranks(2, train("run", {"--ranks", "2"})), "OMPI_COMM_WORLD_SIZE=2");
  expect_refused(run_tetrad(train("run", {"--ranks", "2"}), {"SLURM_NTASKS=2", "SLURM_PROCID=0"}),
                 "SLURM_NTASKS=2");
  expect_refused(run_tetrad(train("run", {"--gpus", "64"})), "--gpus 64: ");
  expect_refused(run_tetrad(train("run", {"--gpus", "2", "--backend", "cpu"})), "use --ranks 2");
  expect_refused(run_tetrad(train("run", {"--gpus", "2", "--ranks", "2"})), "excludes");
}

TEST_F(CommandRanks, InspectFindsTheSame) {
  ASSERT_EQ(run_tetrad(train("run")).exit_code, 0);
  const std::string kept = folder_.file("kept.yaml");
  const Outcome alone = run_tetrad(inspect({"--yaml", kept}));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const std::string expected = read_file(kept);
  for (const int ranks : {2, 3, 8}) {  // more of them than microbatches, too
    SCOPED_TRACE(ranks);
    fs::remove(kept);
    const Outcome together = run_ranks(ranks, inspect({"--yaml", kept}));
    ASSERT_EQ(together.exit_code, 0) << together.err;
    EXPECT_EQ(together.out, alone.out);
    EXPECT_EQ(read_file(kept), expected);
  }
}

/// What is wrong on one rank is said once, and ends all with its exit code.
TEST_F(CommandRanks, AnErrorOfInspectIsEverybodys) {
  const Outcome nothing = run_ranks(2, inspect());
  EXPECT_EQ(nothing.exit_code, 4) << nothing.err;
  ASSERT_EQ(run_tetrad(train("run", {"precision.recipe=bf16"})).exit_code, 0);
  const Outcome bf16 = run_ranks(2, {"inspect", folder_.file("run"), "--backend", "cpu"});
  EXPECT_EQ(bf16.exit_code, 2) << bf16.err;
  EXPECT_NE(bf16.err.find("nothing to inspect"), std::string::npos) << bf16.err;
  EXPECT_EQ(bf16.err.find("nothing to inspect"), bf16.err.rfind("nothing to inspect")) << "said once";
  const Outcome one = run_ranks(2, inspect(), {"TETRAD_FAILPOINTS=data.read=eio@1@rank1"});
  EXPECT_EQ(one.exit_code, 1) << one.err;
  EXPECT_NE(one.err.find("rank 1: "), std::string::npos) << one.err;
}

TEST_F(CommandRanks, CompareFindsTheSame) {
  const Outcome alone = run_tetrad(compare("alone"));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const std::string name = "on-" + std::to_string(ranks);
    const Outcome together = run_ranks(ranks, compare(name));
    ASSERT_EQ(together.exit_code, 0) << together.err;
    EXPECT_EQ(together.out.substr(0, together.out.find("The report")),
              alone.out.substr(0, alone.out.find("The report")));
    for (const char* run : {"trunks/seed-3", "trunks/seed-4", "runs/bf16/seed-3", "runs/bf16/seed-4",
                            "runs/nvfp4/seed-3", "runs/nvfp4/seed-4"}) {
      const std::string from = std::string("alone/") + run;
      const bool is_trunk = std::string_view(run).starts_with("trunks");
      EXPECT_EQ(metrics(name + "/" + run).size(), metrics(from).size());
      const std::string model =
          is_trunk ? "/checkpoints/step-4/model.safetensors" : "/checkpoints/step-12/model.safetensors";
      EXPECT_TRUE(read_file(folder_ / name / (run + model)) == read_file(folder_ / (from + model)));
    }
    for (const char* probes : {"runs/bf16/probes.json", "runs/nvfp4/probes.json"})
      EXPECT_EQ(read_file(folder_ / name / probes), read_file(folder_ / "alone" / probes));
    const Json report = Json::parse(read_file(folder_ / name / "report.json"));
    EXPECT_TRUE(report["complete"]);
    EXPECT_EQ(report["arms"][1]["verdict"],
              Json::parse(read_file(folder_ / "alone/report.json"))["arms"][1]["verdict"]);
  }
}

/// A comparison that a rank's death has stopped goes on, also on another number of ranks.
TEST_F(CommandRanks, CompareGoesOn) {
  ASSERT_EQ(run_tetrad(compare("alone")).exit_code, 0);
  const Outcome killed = run_ranks(4, compare("c"), {"TETRAD_FAILPOINTS=communicator.start=kill@300@rank2"});
  EXPECT_NE(killed.exit_code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "c/runs/nvfp4/probes.json"));
  const Outcome resumed = run_ranks(2, {"compare", "--resume", folder_.file("c")});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  for (const char* probes : {"runs/bf16/probes.json", "runs/nvfp4/probes.json"})
    EXPECT_EQ(read_file(folder_ / "c" / probes), read_file(folder_ / "alone" / probes));
}

TEST_F(CommandRanks, CompareIsRefusedOnceForAll) {
  const Outcome refused = run_ranks(3, compare("c"));
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_NE(refused.err.find("train.groups is 4"), std::string::npos) << refused.err;
  EXPECT_EQ(refused.err.find("train.groups is 4"), refused.err.rfind("train.groups is 4"));
}

}  // namespace
}  // namespace tetrad::testing::ranks_test
