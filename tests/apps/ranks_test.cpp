// SPDX-License-Identifier: Apache-2.0
// Commands on several ranks, and ranks that a command starts by itself.

#include "support/ranks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "support/training.h"

namespace tetrad::testing::ranks_test {
namespace {

namespace fs = std::filesystem;

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
};

/// Where an option starts ranks: PATH leads to the mpirun of the build.
Words path_to_mpirun() {
  const std::string folder = fs::path(TETRAD_MPIRUN).parent_path().string();
  return {"PATH=" + folder + ":" + std::getenv("PATH")};
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

}  // namespace
}  // namespace tetrad::testing::ranks_test
