// SPDX-License-Identifier: Apache-2.0
// Which checkpoints there are and stay, and how runs go on from them.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "support/process.h"
#include "support/training.h"

namespace tetrad::testing::train_keep_test {
namespace {

constexpr const char* kModel =
    "model: {pattern: \"*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 48, vocab: 64, tied: "
    "true}\n";
constexpr const char* kAfterEveryStep = "train.checkpoint.minutes=1e-9";

class Keeping : public Training {
 protected:
  std::set<std::string> checkpoints(const std::string& run) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / run / "checkpoints"))
      if (entry.is_directory()) names.insert(entry.path().filename().native());
    return names;
  }

  nlohmann::json state(const std::string& run, const std::string& checkpoint) {
    return nlohmann::json::parse(read_file(folder_ / run / "checkpoints" / checkpoint / "state.json"));
  }
};

TEST_F(Keeping, TheClockAsksForCheckpointsToo) {
  ASSERT_EQ(run_tetrad(arguments(kModel, "bf16", "whole")).exit_code, 0);
  // Every checkpoint but the first is a folder that is made after a step.
  const Outcome killed =
      run_tetrad(arguments(kModel, "bf16", "run", {"train.checkpoint.every=0", kAfterEveryStep}),
                 {"TETRAD_FAILPOINTS=checkpoint.create_folder=kill@9"});
  EXPECT_EQ(killed.exit_code, -1);
  EXPECT_TRUE(checkpoints("run").contains("step-7"));
  const Outcome none = run_tetrad(
      arguments(kModel, "bf16", "none", {"train.checkpoint.every=0", "train.checkpoint.minutes=0"}),
      {"TETRAD_FAILPOINTS=checkpoint.create_folder=kill@2"});
  EXPECT_EQ(none.exit_code, -1);
  EXPECT_EQ(checkpoints("none"), std::set<std::string>{"step-0"}) << "killed before the second, of step 12";
  const Outcome resumed = run_tetrad({"train", "--resume", folder_.file("run"), "train.checkpoint.every=3"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(metrics("run"), metrics("whole"));
}

TEST_F(Keeping, ATrialOfSpeedKeepsNone) {
  const Outcome outcome =
      run_tetrad(arguments(kModel, "bf16", "run", {"train.checkpoint.enabled=false", kAfterEveryStep}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "checkpoints") && !checkpoints("run").empty());
  ASSERT_EQ(run_tetrad(arguments(kModel, "bf16", "whole")).exit_code, 0);
  EXPECT_EQ(metrics("run"), metrics("whole"));
  const Outcome resumed = run_tetrad({"train", "--resume", folder_.file("run")});
  EXPECT_NE(resumed.exit_code, 0);
  EXPECT_NE(resumed.err.find("checkpoint"), std::string::npos) << resumed.err;
}

TEST_F(Keeping, TheBestAndEveryNthStayForGood) {
  const Outcome outcome =
      run_tetrad(arguments(kModel, "bf16", "run",
                           {"train.checkpoint.every=2", "train.checkpoint.keep_every=4", "train.eval.every=2",
                            "optim.lr=0.03", "schedule.kind=constant"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::set<std::string> kept = checkpoints("run");
  for (const char* name : {"step-4", "step-8", "step-10", "step-12"})
    EXPECT_TRUE(kept.contains(name)) << name;
  const nlohmann::json best = state("run", "step-12").at("best");
  // It is the lowest of the evaluations, of which each was at a checkpoint.
  double lowest = 1e9;
  std::int64_t lowest_step = 0;
  for (const nlohmann::json& line : metrics("run"))
    if (line["kind"] == "eval" && line["loss"].get<double>() < lowest) {
      lowest = line["loss"].get<double>();
      lowest_step = line["step"].get<std::int64_t>();
    }
  EXPECT_EQ(best["step"], lowest_step);
  EXPECT_TRUE(kept.contains("step-" + std::to_string(lowest_step)));
  EXPECT_FALSE(kept.contains("step-0"));
  EXPECT_EQ(kept.contains("step-6"), lowest_step == 6);
}

TEST_F(Keeping, ContinueBeginsAndGoesOn) {
  ASSERT_EQ(run_tetrad(arguments(kModel, "bf16", "whole")).exit_code, 0);
  const Words words = arguments(kModel, "bf16", "run", {"--continue"});
  EXPECT_EQ(run_tetrad(words, {"TETRAD_FAILPOINTS=file.create=kill@2"}).exit_code, -1);  // before config.yaml
  EXPECT_EQ(run_tetrad(words, {"TETRAD_FAILPOINTS=checkpoint.write=kill@2"}).exit_code,
            -1);  // before step 0 is saved
  EXPECT_EQ(run_tetrad(words, {"TETRAD_FAILPOINTS=metrics.write=kill@12"}).exit_code, -1);
  const Outcome finished = run_tetrad(words);
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_NE(finished.err.find("resumed from"), std::string::npos) << finished.err;
  expect_same_run("whole", "run");
  EXPECT_EQ(run_tetrad(words).exit_code, 0) << "a run that is finished stays finished";
  expect_same_run("whole", "run");

  const Outcome other = run_tetrad(arguments(kModel, "bf16", "run", {"--continue", "optim.lr=0.5"}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("optim.lr"), std::string::npos) << other.err;
  EXPECT_EQ(run_tetrad({"train", "--continue", "--resume", folder_.file("run")}).exit_code, 2);
}

/// Where a run happened to be interrupted must not decide what a rollback goes back to.
TEST_F(Keeping, ARollbackGoesBackToTheScheduleOnly) {
  const Words rollback = {"train.health.policy=rollback"};
  ASSERT_EQ(
      run_tetrad(arguments(kModel, "bf16", "whole", rollback), {"TETRAD_FAILPOINTS=train.non_finite=eio@11"})
          .exit_code,
      0);
  // Saved after every step, and killed at the checkpoint of step 11: the newest is that of step 10.
  ASSERT_EQ(run_tetrad(arguments(kModel, "bf16", "run", {"train.health.policy=rollback", kAfterEveryStep}),
                       {"TETRAD_FAILPOINTS=checkpoint.create_folder=kill@12"})
                .exit_code,
            -1);
  ASSERT_TRUE(checkpoints("run").contains("step-10"));
  const Outcome resumed =
      run_tetrad({"train", "--resume", folder_.file("run")}, {"TETRAD_FAILPOINTS=train.non_finite=eio@1"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("went back to step 9"), std::string::npos) << resumed.err;
  expect_same_run("whole", "run");
}

/// A kill after a rollback: what it wrote about it happens again, and is there once.
TEST_F(Keeping, LinesAreNeitherLostNorDoubled) {
  const Words words = {"train.health.policy=rollback"};
  const std::vector<std::string> fault = {"TETRAD_FAILPOINTS=train.non_finite=eio@11"};
  ASSERT_EQ(run_tetrad(arguments(kModel, "bf16", "whole", words), fault).exit_code, 0);
  // When a checkpoint is done, beside the steps that follow, is chance: its lines have an order of their own.
  const auto lines = [&](const std::string& run) {
    std::vector<std::string> kinds;
    std::vector<std::string> checkpoints;
    std::ifstream in(folder_ / run / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json json = nlohmann::json::parse(line);
      if (json["kind"] != "resume")
        (json["kind"] == "checkpoint" ? checkpoints : kinds)
            .push_back(json["kind"].get<std::string>() + " " + json["step"].dump());
    }
    kinds.insert(kinds.end(), checkpoints.begin(), checkpoints.end());
    return kinds;
  };
  const std::vector<std::string> expected = lines("whole");
  for (std::size_t at = 1; at <= expected.size() + 4; at += 3) {  // scripts/torture strikes anywhere
    const std::string run = "run-" + std::to_string(at);
    const Outcome killed =
        run_tetrad(arguments(kModel, "bf16", run, words),
                   {"TETRAD_FAILPOINTS=train.non_finite=eio@11,metrics.write=kill@" + std::to_string(at)});
    if (killed.exit_code == 0) {
      EXPECT_GE(at, expected.size()) << "the test could not fail";
      break;
    }
    // The fault comes in the same step again, unless the run was past it.
    std::int64_t newest = -1;
    for (const std::string& name : checkpoints(run))
      if (name.find('.') == std::string::npos)
        newest = std::max<std::int64_t>(newest, std::stoll(name.substr(5)));
    const bool is_past = newest == 12;
    const std::int64_t until = 11 - std::max<std::int64_t>(newest, 0);
    const Outcome resumed = run_tetrad(
        {"train", "--resume", folder_.file(run)},
        is_past
            ? std::vector<std::string>{}
            : std::vector<std::string>{"TETRAD_FAILPOINTS=train.non_finite=eio@" + std::to_string(until)});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(lines(run), expected) << "killed at line " << at;
    std::filesystem::remove_all(folder_ / run);
  }
}

TEST_F(Keeping, AFullDiskIsSeenBeforehand) {
  const Outcome outcome =
      run_tetrad(arguments(kModel, "bf16", "run"), {"TETRAD_FAILPOINTS=checkpoint.space=enospc@3"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("NO CHECKPOINT of step 6"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("GB free"), std::string::npos) << outcome.err;
}

TEST_F(Keeping, DataThatCannotBeReadAnyMoreLosesNothing) {
  ASSERT_EQ(run_tetrad(arguments(kModel, "bf16", "whole")).exit_code, 0);
  bool was_hit = false;
  for (int at = 20; at <= 40 && !was_hit; at += 4) {
    std::filesystem::remove_all(folder_ / "run");
    const Outcome failed = run_tetrad(arguments(kModel, "bf16", "run"),
                                      {"TETRAD_FAILPOINTS=data.read=eio@" + std::to_string(at)});
    was_hit = failed.exit_code == 1 && failed.err.find("checkpoint") != std::string::npos;
  }
  ASSERT_TRUE(was_hit) << "the test could not fail";
  finish("run");
  expect_same_run("whole", "run");
}

TEST_F(Keeping, AFinishedRunGrows) {
  ASSERT_EQ(run_tetrad(arguments(kModel, "bf16", "run")).exit_code, 0);
  const Outcome refused = run_tetrad({"train", "--resume", folder_.file("run"), "train.steps=18"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--change"), std::string::npos) << refused.err;
  EXPECT_EQ(run_tetrad({"train", "--resume", folder_.file("run"), "--change", "model.hidden=64"}).exit_code,
            2);
  EXPECT_EQ(run_tetrad({"train", "--resume", folder_.file("run"), "--change", "train.steps=5"}).exit_code, 2);

  const Words grown = {"train",    "--resume",       folder_.file("run"),
                       "--change", "train.steps=18", "optim.lr=0.001"};
  EXPECT_EQ(run_tetrad(grown, {"TETRAD_FAILPOINTS=metrics.write=kill@9"}).exit_code, -1);
  finish("run");  // as it is now
  std::vector<std::string> changed;
  for (const nlohmann::json& line : metrics("run"))
    if (line["kind"] == "change" && line["step"] == kSteps) changed.push_back(line["what"]);
  EXPECT_EQ(changed, (std::vector<std::string>{"optim.lr", "train.steps"}));
  EXPECT_NE(read_file(folder_ / "run" / "log.txt").find("changed at step 12: train.steps from 12 to 18"),
            std::string::npos);
  EXPECT_NE(read_file(folder_ / "run" / "config.yaml").find("steps: 18"), std::string::npos);
  EXPECT_FALSE(final_state("run", 18).empty());

  // In one go it is the same.
  ASSERT_EQ(run_tetrad(arguments(kModel, "bf16", "whole")).exit_code, 0);
  ASSERT_EQ(
      run_tetrad({"train", "--resume", folder_.file("whole"), "--change", "train.steps=18", "optim.lr=0.001"})
          .exit_code,
      0);
  expect_same_run("whole", "run", 18);
}

TEST_F(Keeping, SwitchesAreInTheRecord) {
  ASSERT_EQ(run_tetrad(arguments(kModel, "nvfp4", "run")).exit_code, 0);
  std::vector<std::string> changes;
  for (const nlohmann::json& line : metrics("run"))
    if (line["kind"] == "change")
      changes.push_back(fmt::format("{} {} {} {}", line["step"].dump(), line["what"].get<std::string>(),
                                    line["before"].get<std::string>(), line["after"].get<std::string>()));
  EXPECT_EQ(changes, (std::vector<std::string>{"7 forward precision nvfp4 bf16", "8 phase of the data 0 1"}));
  EXPECT_NE(read_file(folder_ / "run" / "log.txt").find("from step 7 on: forward precision bf16"),
            std::string::npos);
}

TEST_F(Keeping, DataLiesBesideItsConfiguration) {
  const Words words = arguments(kModel, "bf16", "run", {"train.steps=3"});
  // The same configuration with paths that hold from its own folder only.
  std::string text = read_file(words[1]);
  for (std::size_t at = text.find(folder_.path().native()); at != std::string::npos;
       at = text.find(folder_.path().native()))
    text.erase(at, folder_.path().native().size() + 1);
  write_file(words[1], text);
  const Outcome outcome = run_tetrad(words);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(read_file(folder_ / "run" / "config.yaml").find(folder_.file("a-heldout")), std::string::npos);
}

TEST_F(Keeping, ATraceShowsWhereTimeGoesAndChangesNothing) {
  ASSERT_EQ(run_tetrad(arguments(kModel, "nvfp4", "whole")).exit_code, 0);
  const std::string file = folder_.file("trace.json");
  ASSERT_EQ(
      run_tetrad(arguments(kModel, "nvfp4", "run", {"run.trace=" + file, "run.trace_steps=3"})).exit_code, 0);
  expect_same_run("whole", "run");
  std::map<std::string, int> counts;
  const nlohmann::json trace = nlohmann::json::parse(read_file(file));
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") continue;  // a name of the rank
    ++counts[event.at("name")];
    EXPECT_GE(event.at("dur"), 0);
  }
  EXPECT_EQ(counts["microbatch 0"], 3);
  EXPECT_EQ(counts["forward of block 1"], 6) << "of two microbatches in each step";
  EXPECT_EQ(counts["backward of block 1"], 6);
  EXPECT_EQ(counts["optimizer"], 3);
  EXPECT_EQ(counts["checkpoint"], 1);
}

TEST_F(Keeping, SeedsOfTheirOwn) {
  ASSERT_EQ(run_tetrad(arguments(kModel, "nvfp4", "one", {"train.seed=5"})).exit_code, 0);
  ASSERT_EQ(run_tetrad(arguments(kModel, "nvfp4", "same",
                                 {"train.seed=9", "train.seeds.data=5", "train.seeds.init=5",
                                  "train.seeds.rounding=5"}))
                .exit_code,
            0);
  expect_same_run("one", "same");
  for (const char* seed : {"data", "init", "rounding"}) {
    ASSERT_EQ(run_tetrad(arguments(kModel, "nvfp4", seed,
                                   {"train.seed=5", "train.seeds." + std::string(seed) + "=6"}))
                  .exit_code,
              0);
    EXPECT_NE(metrics(seed), metrics("one")) << seed;
  }
}

}  // namespace
}  // namespace tetrad::testing::train_keep_test
