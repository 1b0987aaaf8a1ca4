// SPDX-License-Identifier: Apache-2.0
// Several ranks under mpirun: the same bits on any number of them, and what befalls one befalls all.

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/process.h"
#include "support/ranks.h"
#include "support/training.h"

namespace tetrad::testing::train_ranks_test {
namespace {

namespace fs = std::filesystem;

// A vocabulary, rows and widths that neither two nor four ranks divide evenly.
constexpr const char* kLlama =
    "model: {pattern: \"*-*-\", hidden: 48, heads: 3, kv_heads: 1, head_dim: 16, ffn: 80, vocab: 67, tied: "
    "true}\n";
constexpr const char* kHybrid =
    "model: {pattern: \"M-*\", hidden: 48, heads: 3, kv_heads: 1, head_dim: 16, ffn: 80, vocab: 67, tied: "
    "false, mamba: {heads: 8, head_dim: 16, groups: 2, state: 14, chunk: 16}}\n";

using Ranks = TrainingOfRanks;

class RanksOf : public Ranks, public ::testing::WithParamInterface<Family> {
 protected:
  void leave_the_same_files(const std::string& zero);
};

void RanksOf::leave_the_same_files(const std::string& zero) {
  const Outcome alone =
      run_tetrad(run_of(GetParam().model, GetParam().recipe, "run", {"parallel.zero=" + zero}));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const auto expected = files("run");
  const auto expected_metrics = metrics("run");
  ASSERT_TRUE(expected.contains("model.safetensors") && expected.contains("optimizer.safetensors"));
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    rewind("run");
    const Outcome together = run_ranks(ranks, {"train", "--resume", folder_.file("run")});
    ASSERT_EQ(together.exit_code, 0) << together.err;
    EXPECT_NE(together.err.find(std::to_string(ranks) + " ranks over mpi"), std::string::npos)
        << together.err;
    EXPECT_TRUE(files("run") == expected);
    EXPECT_EQ(metrics("run"), expected_metrics);
  }
}

TEST_P(RanksOf, LeaveTheSameFiles) { leave_the_same_files("0"); }
TEST_P(RanksOf, LeaveTheSameFilesWhereTheyShareWeights) { leave_the_same_files("1"); }
TEST_P(RanksOf, LeaveTheSameFilesWhereTheyShareGradients) { leave_the_same_files("2"); }
TEST_P(RanksOf, LeaveTheSameFilesWhereTheyShareEverything) { leave_the_same_files("3"); }

INSTANTIATE_TEST_SUITE_P(
    All, RanksOf,
    ::testing::Values(Family{"llama_bf16", kLlama, "bf16"}, Family{"llama_fp8", kLlama, "fp8"},
                      Family{"llama_mxfp4", kLlama, "mxfp4"}, Family{"llama_nvfp4", kLlama, "nvfp4"},
                      Family{"hybrid_bf16", kHybrid, "bf16"}, Family{"hybrid_fp8", kHybrid, "fp8"},
                      Family{"hybrid_mxfp4", kHybrid, "mxfp4"}, Family{"hybrid_nvfp4", kHybrid, "nvfp4"}),
    [](const auto& of) { return of.param.name; });

/// Transforms, means and scales of whole tensors, for which masters travel instead of codes.
TEST_F(Ranks, ShareWeightsWhateverIsMadeOfThem) {
  for (const Words& precision :
       {Words{"precision.rht={gemms: [fprop, dgrad, wgrad], size: 16}"}, Words{"precision.centre=true"},
        Words{"precision.scale=eden", "precision.rht.size=16"}, Words{"precision.scale=4/6"},
        Words{"precision.storage=f32"}}) {
    SCOPED_TRACE(precision[0]);
    fs::remove_all(folder_ / "run");
    Words more = precision;
    more.emplace_back("parallel.zero=1");
    const Outcome alone = run_tetrad(run_of(kLlama, "nvfp4", "run", more));
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    const auto expected = files("run");
    rewind("run");
    const Outcome together = run_ranks(4, {"train", "--resume", folder_.file("run")});
    ASSERT_EQ(together.exit_code, 0) << together.err;
    EXPECT_TRUE(files("run") == expected);
  }
}

/// What a block's gradients or weights take to travel lies beside the computation of another block.
TEST_F(Ranks, ATraceShowsWhatTravelsBesideComputation) {
  const std::string file = folder_.file("trace.json");
  const Outcome run = run_ranks(
      2, run_of(kLlama, "nvfp4", "run", {"parallel.zero=3", "run.trace=" + file, "run.trace_steps=2"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  struct Part {
    std::string name;
    double begin, end;
  };
  std::map<std::pair<int, bool>, std::vector<Part>> parts;  // by rank, and whether it is computed
  const nlohmann::json trace = nlohmann::json::parse(read_file(file));
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") continue;
    const double begin = event.at("ts");
    parts[{event.at("pid"), event.at("tid") == 0}].push_back(
        {event.at("name"), begin, begin + event.at("dur").get<double>()});
  }
  for (const int rank : {0, 1}) {
    const std::vector<Part>& computed = parts[{rank, true}];
    std::map<std::string, int> beside;
    for (const Part& travels : parts[{rank, false}])
      for (const Part& part : computed)
        if (part.name.starts_with("backward of block") && travels.begin < part.begin &&
            part.begin < travels.end)
          ++beside[travels.name.substr(0, travels.name.find(' '))];
    EXPECT_GT(beside["exchange"], 0) << "gradients, on rank " << rank;
    EXPECT_GT(beside["gather"], 0) << "weights, on rank " << rank;
  }
}

TEST_F(Ranks, GroupsDecideNotRanks) {
  ASSERT_EQ(run_tetrad(run_of(kLlama, "nvfp4", "four")).exit_code, 0);
  ASSERT_EQ(run_tetrad(run_of(kLlama, "nvfp4", "one", {"train.groups=1"})).exit_code, 0);
  EXPECT_FALSE(final_state("four") == final_state("one")) << "sums of another order have other bits";
  const Outcome three = run_ranks(3, run_of(kLlama, "nvfp4", "three"));
  EXPECT_EQ(three.exit_code, 2);
  EXPECT_NE(three.err.find("train.groups is 4"), std::string::npos) << three.err;
  EXPECT_EQ(three.err.find("train.groups is 4"), three.err.rfind("train.groups is 4")) << "said once";
}

/// Killed anywhere on one rank, all end, and the run goes on, or begins, with another number of ranks.
TEST_F(Ranks, WhatOneLosesAllGetBack) {
  ASSERT_EQ(run_tetrad(run_of(kHybrid, "nvfp4", "whole")).exit_code, 0);
  int run = 0;
  for (const char* zero : {"parallel.zero=0", "parallel.zero=1", "parallel.zero=3"})
    for (const char* fault :
         {"data.read=kill@20@rank1", "communicator.start=kill@9@rank3", "communicator.start=kill@70@rank2",
          "checkpoint.rename=kill@2@rank0", "communicator.wait=kill@12@rank0"}) {
      SCOPED_TRACE(fault);
      const std::string name = "run-" + std::to_string(run++);
      const Outcome killed =
          run_ranks(4, run_of(kHybrid, "nvfp4", name, {zero}), {std::string("TETRAD_FAILPOINTS=") + fault});
      EXPECT_NE(killed.exit_code, 0);
      const Outcome resumed = run_ranks(1 << run % 3, run_of(kHybrid, "nvfp4", name, {"--continue", zero}));
      ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
      expect_same_run("whole", name);
    }
}

TEST_F(Ranks, ANumberThatIsNotFiniteIsEverybodys) {
  const Words fault = {"TETRAD_FAILPOINTS=train.non_finite=eio@5@rank1"};
  ASSERT_EQ(run_ranks(2, run_of(kLlama, "nvfp4", "two"), fault).exit_code, 0);
  ASSERT_EQ(
      run_tetrad(run_of(kLlama, "nvfp4", "one"), {"TETRAD_FAILPOINTS=train.non_finite=eio@5"}).exit_code, 0);
  expect_same_run("one", "two");
}

TEST_F(Ranks, AFullDiskOfTheFirstCostsNothing) {
  ASSERT_EQ(run_tetrad(run_of(kLlama, "nvfp4", "whole")).exit_code, 0);
  const Outcome full =
      run_ranks(2, run_of(kLlama, "nvfp4", "run"), {"TETRAD_FAILPOINTS=checkpoint.write=enospc@9@rank0"});
  ASSERT_EQ(full.exit_code, 0) << full.err;
  EXPECT_NE(full.err.find("NO CHECKPOINT of step"), std::string::npos) << full.err;
  EXPECT_TRUE(final_state("run") == final_state("whole"));
}

/// Data that one rank can no longer read ends the run on all, with a checkpoint and the rank's name.
TEST_F(Ranks, AnErrorOfOneIsSavedByAll) {
  ASSERT_EQ(run_tetrad(run_of(kLlama, "nvfp4", "whole")).exit_code, 0);
  for (const std::string zero : {"0", "1", "3"}) {
    const std::string run = "run-" + zero;
    const Outcome failed = run_ranks(2, run_of(kLlama, "nvfp4", run, {"parallel.zero=" + zero}),
                                     {"TETRAD_FAILPOINTS=data.read=eio@30@rank1"});
    EXPECT_NE(failed.exit_code, 0);
    EXPECT_NE(failed.err.find("rank 1: "), std::string::npos) << failed.err;
    finish(run);
    expect_same_run("whole", run);
  }
}

TEST_F(Ranks, ARankThatHangsIsNamed) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome hung = run_ranks(2, run_of(kLlama, "nvfp4", "run", {"run.rank_minutes=0.05"}),
                                 {"TETRAD_FAILPOINTS=data.read=hang@20@rank1"});
  EXPECT_NE(hung.exit_code, 0);
  EXPECT_NE(hung.err.find("rank 0 on "), std::string::npos) << hung.err;
  EXPECT_NE(hung.err.find("has been at no collective"), std::string::npos) << hung.err;
  EXPECT_LT(hung.err.find("rank 1 on "), hung.err.find("has been at no collective")) << hung.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
}

/// Also while the folder is being made, of which the others can know nothing.
TEST_F(Ranks, ARankThatHangsAtTheBeginningIsNamed) {
  const Outcome hung = run_ranks(2, run_of(kLlama, "nvfp4", "run", {"run.rank_minutes=0.02"}),
                                 {"TETRAD_FAILPOINTS=file.create=hang@1@rank0"});
  EXPECT_NE(hung.exit_code, 0);
  EXPECT_NE(hung.err.find("rank 1 on "), std::string::npos) << hung.err;
  EXPECT_LT(hung.err.find("rank 0 on "), hung.err.find("has been at no collective")) << hung.err;
}

/// A signal to one rank stops all of them after a checkpoint.
TEST_F(Ranks, ASignalToOneStopsAll) {
  ASSERT_EQ(run_tetrad(run_of(kLlama, "nvfp4", "whole")).exit_code, 0);
  RunningTetrad running(run_of(kLlama, "nvfp4", "run"), {"TETRAD_FAILPOINTS=data.read=slow"}, {},
                        launcher(2));
  const fs::path begun = folder_ / "run/metrics.jsonl";
  const auto has_trained = [&] {
    return fs::exists(begun) && read_file(begun).find("train") != std::string::npos;
  };
  while (!has_trained() && !running.finished()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  running.send(SIGUSR2);  // mpirun passes it on
  const Outcome stopped = running.wait();
  EXPECT_NE(stopped.err.find("stopped by a signal after step"), std::string::npos) << stopped.err;
  finish("run");
  expect_same_run("whole", "run");
}

/// A launcher that started several ranks which do not see each other must not train several times.
TEST_F(Ranks, SilentSingletonsAreRefused) {
  const Outcome alone = run_tetrad(run_of(kLlama, "nvfp4", "run"), {"SLURM_NTASKS=4", "SLURM_PROCID=1"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_NE(alone.err.find("SLURM_NTASKS=4"), std::string::npos) << alone.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

}  // namespace
}  // namespace tetrad::testing::train_ranks_test
