// SPDX-License-Identifier: Apache-2.0
// Training as a user does it: the program is started, killed, resumed, and its files are compared to the bit.

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/exposition.h"
#include "support/files.h"
#include "support/http_client.h"
#include "support/process.h"
#include "support/training.h"
#include "tetrad/core/failpoint.h"

namespace tetrad::testing {
namespace {

constexpr const char* kLlama =
    "model: {pattern: \"*-*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 48, activation: "
    "swiglu, "
    "vocab: 64, tied: true}\n";
constexpr const char* kHybrid =
    "model: {pattern: \"M-*-\", hidden: 32, heads: 2, kv_heads: 2, head_dim: 16, ffn: 64, activation: "
    "squared_relu, "
    "vocab: 64, tied: false, rope: none, mamba: {heads: 4, head_dim: 16, groups: 2, state: 15, chunk: 8}}\n";
constexpr const char* kQwen3 =
    "model: {pattern: \"*-*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, qk_norm: true, ffn: 48, "
    "activation: swiglu, vocab: 64, tied: true}\n";
class KilledRuns : public Training, public ::testing::WithParamInterface<Family> {};

TEST_P(KilledRuns, ResumeToTheBit) {
  const Family& family = GetParam();
  const Outcome whole = run_tetrad(arguments(family.model, family.recipe, "whole", {"run.threads=1"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;

  // SIGKILL at moments that nobody chose …
  {
    RunningTetrad first(arguments(family.model, family.recipe, "killed", {"run.threads=1"}));
    while (!std::filesystem::exists(folder_ / "killed" / "checkpoints" / "step-0") && !first.finished())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    first.send(SIGKILL);
    first.wait();
  }
  for (const int milliseconds : {40, 5, 60}) {
    RunningTetrad again({"train", "--resume", folder_.file("killed")});
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    again.send(SIGKILL);
    again.wait();
  }
  finish("killed");
  expect_same_run("whole", "killed");

  // … and at chosen ones: inside a step, inside a checkpoint.
  Words start = arguments(family.model, family.recipe, "struck", {"run.threads=1"});
  for (const char* where :
       {"metrics.write=kill@2", "checkpoint.write=kill@2", "checkpoint.after_rename=kill"}) {
    const Outcome struck = run_tetrad(start, {std::string("TETRAD_FAILPOINTS=") + where});
    EXPECT_EQ(struck.exit_code, -1) << where << " did not strike: " << struck.err;
    start = {"train", "--resume", folder_.file("struck")};
  }
  finish("struck");
  expect_same_run("whole", "struck");

  // Another number of threads: the same bits.
  const Outcome threads = run_tetrad(arguments(family.model, family.recipe, "threads", {"run.threads=2"}));
  ASSERT_EQ(threads.exit_code, 0) << threads.err;
  expect_same_run("whole", "threads");
}

INSTANTIATE_TEST_SUITE_P(All, KilledRuns,
                         ::testing::Values(Family{"llama_bf16", kLlama, "bf16"},
                                           Family{"llama_nvfp4", kLlama, "nvfp4"},
                                           Family{"qwen3_nvfp4", kQwen3, "nvfp4"},
                                           Family{"hybrid_bf16", kHybrid, "bf16"},
                                           Family{"hybrid_nvfp4", kHybrid, "nvfp4"}),
                         [](const auto& test) { return test.param.name; });

TEST_F(Training, EveryFailpointLeavesARunThatCanBeResumed) {
  ASSERT_EQ(run_tetrad(arguments(kLlama, "nvfp4", "whole")).exit_code, 0);
  for (const std::string_view point : kFailpoints) {
    if (point.starts_with("train.")) continue;         // those are faults of the training, not of the machine
    if (point.starts_with("offload.")) continue;       // where memory is short: train_memory_test.cpp
    if (point.starts_with("host.")) continue;          // before the first step: train_memory_test.cpp
    if (point.starts_with("communicator.")) continue;  // there is one rank
    // Old checkpoints go a few times in so short a run, and none of the same step is in the way.
    const bool is_rare = point == "checkpoint.retire" || point == "checkpoint.remove";
    const bool is_reached = point != "checkpoint.set_aside";
    for (const char* action : {"kill", "enospc", "eio", "enomem"}) {
      const std::string where = std::string(point) + "=" + action + (is_rare ? "@2" : "@4");
      SCOPED_TRACE(where);
      const std::string run = "run-" + std::string(point) + "-" + action;
      const Outcome first = run_tetrad(arguments(kLlama, "nvfp4", run), {"TETRAD_FAILPOINTS=" + where});
      if (std::string_view(action) == "kill") {
        EXPECT_EQ(first.exit_code, is_reached ? -1 : 0) << first.err;
      }
      if (first.exit_code != 0) finish(run);
      expect_same_run("whole", run);
      std::filesystem::remove_all(folder_ / run);
    }
  }
}

/// Reading, or what comes after it, takes longer than a step.
TEST_F(Training, CheckpointsBesideTrainingAreOfOneStep) {
  const Words words = {"run.threads=1"};
  ASSERT_EQ(run_tetrad(arguments(kLlama, "nvfp4", "whole", words)).exit_code, 0);
  for (const char* where :
       {"checkpoint.read=slow,checkpoint.create_folder=kill@3",
        "checkpoint.read=slow,checkpoint.read=kill@80", "checkpoint.read=slow,checkpoint.all_read=kill@3",
        "checkpoint.verify=slow,checkpoint.verify=kill@12", "file.fsync=slow,checkpoint.rename=kill@3",
        "checkpoint.read=slow,checkpoint.read=enomem@80", "checkpoint.read=slow,checkpoint.all_read=enomem@2",
        "checkpoint.verify=slow,file.fsync=eio@10"}) {
    SCOPED_TRACE(where);
    const bool kills = std::string_view(where).find("kill") != std::string_view::npos;
    const Outcome struck =
        run_tetrad(arguments(kLlama, "nvfp4", "run", words), {std::string("TETRAD_FAILPOINTS=") + where});
    EXPECT_EQ(struck.exit_code, kills ? -1 : 0) << struck.err;
    EXPECT_EQ(struck.err.find("NO CHECKPOINT of step 3") != std::string::npos, !kills) << struck.err;
    if (kills) finish("run");
    expect_same_run("whole", "run");
    std::filesystem::remove_all(folder_ / "run");
  }
}

TEST_F(Training, SignalsSaveAndStop) {
  // So many steps that none of these runs can be done before its signal comes.
  constexpr std::int64_t kManySteps = 300;
  const Words long_run = {"train.steps=" + std::to_string(kManySteps), "train.checkpoint.every=100",
                          "train.eval.every=100"};
  ASSERT_EQ(run_tetrad(arguments(kLlama, "bf16", "whole", long_run)).exit_code, 0);
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string run = signal == SIGTERM ? "term" : "int";
    RunningTetrad running(arguments(kLlama, "bf16", run, long_run));
    while (!std::filesystem::exists(folder_ / run / "checkpoints" / "step-0") && !running.finished())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    running.send(signal);
    const Outcome stopped = running.wait();
    EXPECT_EQ(stopped.exit_code, 5) << stopped.err;
    EXPECT_NE(stopped.err.find("--resume"), std::string::npos) << stopped.err;
    finish(run);
    expect_same_run("whole", run, kManySteps);
  }
}

TEST_F(Training, DamagedCheckpointsAreLeftAsideAndNeverSilently) {
  ASSERT_EQ(run_tetrad(arguments(kLlama, "nvfp4", "whole")).exit_code, 0);
  ASSERT_EQ(run_tetrad(arguments(kLlama, "nvfp4", "damaged")).exit_code, 0);
  const auto damage = [&](std::int64_t step) {
    const auto file =
        folder_ / "damaged" / "checkpoints" / ("step-" + std::to_string(step)) / "model.safetensors";
    std::string bytes = read_file(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_file(file, bytes);
  };
  damage(kSteps);
  const Outcome resumed = run_tetrad({"train", "--resume", folder_.file("damaged")});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("cannot be used"), std::string::npos) << resumed.err;
  expect_same_run("whole", "damaged");

  for (const std::int64_t step : {kSteps - 3, kSteps}) damage(step);
  const Outcome refused = run_tetrad({"train", "--resume", folder_.file("damaged")});
  EXPECT_EQ(refused.exit_code, 4) << refused.err;
  EXPECT_EQ(run_tetrad({"eval", folder_.file("damaged"), "--data", folder_.file("a")}).exit_code, 4);
}

TEST_F(Training, AFaultySingleStepIsSkippedRolledBackOrStopsTheRun) {
  const auto with_policy = [&](const std::string& run, const std::string& policy) {
    return run_tetrad(arguments(kLlama, "nvfp4", run, {"train.health.policy=" + policy}),
                      {"TETRAD_FAILPOINTS=train.non_finite=eio@5"});
  };
  const Outcome skipped = with_policy("skip", "skip");
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
  EXPECT_NE(read_file(folder_ / "skip" / "metrics.jsonl").find("\"skipped\":true"), std::string::npos);

  const Outcome rolled_back = with_policy("rollback", "rollback");
  EXPECT_EQ(rolled_back.exit_code, 0) << rolled_back.err;
  EXPECT_NE(rolled_back.err.find("went back to step 3"), std::string::npos) << rolled_back.err;

  const Outcome stopped = with_policy("stop", "stop");
  EXPECT_EQ(stopped.exit_code, 3) << stopped.err;
  finish("stop");  // the state before the bad step was saved
  ASSERT_EQ(run_tetrad(arguments(kLlama, "nvfp4", "whole")).exit_code, 0);
  EXPECT_TRUE(final_state("stop") == final_state("whole"));
}

TEST_F(Training, ARunThatBlowsUpStops) {
  const Outcome blown = run_tetrad(
      arguments(kLlama, "nvfp4", "blown", {"optim.lr=1e30", "train.health.max_skips=2", "optim.clip=0"}));
  EXPECT_EQ(blown.exit_code, 3) << blown.err;
  EXPECT_NE(read_file(folder_ / "blown" / "metrics.jsonl").find("\"kind\":\"event\""), std::string::npos);
}

TEST_F(Training, BadConfigurationsAreRefusedBeforeAnythingIsWritten) {
  const auto refused = [&](const Words& more, const std::string& fragment) {
    const Outcome outcome = run_tetrad(arguments(kLlama, "nvfp4", "bad", more), {"CUDA_VISIBLE_DEVICES=-1"});
    EXPECT_EQ(outcome.exit_code, 2) << fragment << outcome.err;
    EXPECT_NE(outcome.err.find(fragment), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "bad")) << fragment;
  };
  refused({"model.vocab=32"}, "vocab");
  refused({"model.hidden=33"}, "hidden");
  refused({"train.stepps=3"}, "did you mean");
  refused({"train.microbatch=3"}, "microbatch");
  refused({"data.sources.a.path=" + folder_.file("nothing")}, "nothing");
  refused({"precision.rht.size=5"}, "rht");
  refused({"run.backend=cuda"}, "CUDA");
  refused({"run.metrics_address=nowhere"}, "run.metrics_address");
  refused({"run.metrics_address=203.0.113.7:0"}, "cannot listen");
  write_file(folder_ / "a.bin", read_file(folder_ / "a.bin").substr(0, 1001));
  refused({}, "a.bin");
}

TEST_F(Training, ARunIsNotOverwrittenNorChanged) {
  ASSERT_EQ(run_tetrad(arguments(kLlama, "bf16", "run", {"train.steps=3"})).exit_code, 0);
  const Outcome again = run_tetrad(arguments(kLlama, "bf16", "run", {"train.steps=3"}));
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.err.find("--resume"), std::string::npos) << again.err;
  const Outcome changed = run_tetrad({"train", "--resume", folder_.file("run"), "optim.lr=1"});
  EXPECT_EQ(changed.exit_code, 2);
  EXPECT_NE(changed.err.find("optim.lr"), std::string::npos) << changed.err;
  EXPECT_EQ(run_tetrad({"train", "--resume", folder_.file("nowhere")}).exit_code, 2);
}

TEST_F(Training, ARunThatNeverMadeAStepGivesItsFolderToTheNext) {
  ASSERT_EQ(run_tetrad(arguments(kLlama, "bf16", "whole", {"train.microbatch=1"})).exit_code, 0);
  // Before the first checkpoint, and after it: as where memory does not suffice.
  for (const char* where : {"checkpoint.write=enospc", "metrics.write=kill@2"}) {
    SCOPED_TRACE(where);
    const Outcome failed =
        run_tetrad(arguments(kLlama, "bf16", "run"), {std::string("TETRAD_FAILPOINTS=") + where});
    ASSERT_NE(failed.exit_code, 0);
    ASSERT_TRUE(std::filesystem::exists(folder_ / "run" / "config.yaml"));
    write_file(folder_ / "run" / "notes.txt", "mine");
    const Outcome again = run_tetrad(arguments(kLlama, "bf16", "run", {"train.microbatch=1"}));
    ASSERT_EQ(again.exit_code, 0) << again.err;
    expect_same_run("whole", "run");
    EXPECT_EQ(read_file(folder_ / "run" / "notes.txt"), "mine");
    std::filesystem::remove_all(folder_ / "run");
  }
}

TEST_F(Training, AKillAtTheFirstFileLeavesNothing) {
  const auto leftovers = [&] {
    return std::ranges::count_if(std::filesystem::directory_iterator(folder_ / "run"), [](const auto& entry) {
      return entry.path().filename().string().find(".tmp.") != std::string::npos;
    });
  };
  ASSERT_EQ(run_tetrad(arguments(kLlama, "bf16", "run"), {"TETRAD_FAILPOINTS=file.write=kill@1"}).exit_code,
            -1);
  ASSERT_EQ(leftovers(), 1);
  ASSERT_EQ(run_tetrad(arguments(kLlama, "bf16", "run")).exit_code, 0);
  EXPECT_EQ(leftovers(), 0);
}

TEST_F(Training, FilesOfOthersAreNotTouched) {
  for (const char* name : {"config.yaml", "metrics.jsonl", "run.json", "checkpoints/step-0/notes"}) {
    SCOPED_TRACE(name);
    const std::filesystem::path file = folder_ / "mine" / name;
    std::filesystem::create_directories(file.parent_path());
    write_file(file, "mine");
    const Outcome refused = run_tetrad(arguments(kLlama, "bf16", "mine"));
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("not the folder of a run"), std::string::npos) << refused.err;
    EXPECT_EQ(read_file(file), "mine");
    EXPECT_EQ(run_tetrad({"train", "--resume", folder_.file("mine")}).exit_code, 2);
    EXPECT_EQ(read_file(file), "mine");
    std::filesystem::remove_all(folder_ / "mine");
  }
}

TEST_F(Training, ARunWithoutItsConfigurationOrMarkerIsStillARun) {
  ASSERT_EQ(run_tetrad(arguments(kLlama, "bf16", "whole")).exit_code, 0);
  ASSERT_EQ(
      run_tetrad(arguments(kLlama, "bf16", "run"), {"TETRAD_FAILPOINTS=metrics.write=kill@8"}).exit_code, -1);
  const std::string config = read_file(folder_ / "run" / "config.yaml");
  const std::string marker = read_file(folder_ / "run" / "run.json");
  std::filesystem::remove(folder_ / "run" / "config.yaml");
  std::filesystem::remove(folder_ / "run" / "run.json");
  EXPECT_EQ(run_tetrad(arguments(kLlama, "bf16", "run")).exit_code, 2) << "it holds a run";
  finish("run");
  expect_same_run("whole", "run");
  EXPECT_EQ(read_file(folder_ / "run" / "config.yaml"), config);
  EXPECT_EQ(nlohmann::json::parse(read_file(folder_ / "run" / "run.json"))["id"],
            nlohmann::json::parse(marker)["id"]);
}

/// Two runs that were killed in the middle, with the same model.
class InterruptedRuns : public Training {
 protected:
  void SetUp() override {
    Training::SetUp();
    for (const char* run : {"first", "second"})
      ASSERT_EQ(run_tetrad(arguments(kLlama, "bf16", run), {"TETRAD_FAILPOINTS=checkpoint.write=kill@16"})
                    .exit_code,
                -1);
  }

  void expect_refused(int exit_code, const std::string& what) {
    const Outcome refused = run_tetrad({"train", "--resume", folder_.file("first")});
    EXPECT_EQ(refused.exit_code, exit_code) << refused.err;
    EXPECT_NE(refused.err.find(what), std::string::npos) << refused.err;
  }
};

TEST_F(InterruptedRuns, AnEditedConfigurationIsNoticed) {
  const std::filesystem::path config = folder_ / "first" / "config.yaml";
  std::string text = read_file(config);
  const std::size_t at = text.find("lr: ");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 4, "lr: 1");
  write_file(config, text);
  expect_refused(2, "optim.lr");
}

TEST_F(InterruptedRuns, OtherTokensInTheSamePlaceAreNoticed) {
  std::string tokens = read_file(folder_ / "a.bin");
  std::swap(tokens[100], tokens[102]);
  ASSERT_NE(tokens, read_file(folder_ / "a.bin")) << "the test could not fail";
  write_file(folder_ / "a.bin", tokens);
  expect_refused(4, "data source a");
}

TEST_F(InterruptedRuns, ACheckpointOfAnotherRunIsNoticed) {
  std::filesystem::remove_all(folder_ / "first" / "checkpoints");
  std::filesystem::copy(folder_ / "second" / "checkpoints", folder_ / "first" / "checkpoints",
                        std::filesystem::copy_options::recursive);
  expect_refused(4, "another run");
}

TEST_F(InterruptedRuns, DataMayMoveIfItIsTheSame) {
  for (const char* end : {".bin", ".idx", ".json"})
    std::filesystem::rename(folder_ / ("b" + std::string(end)), folder_ / ("moved" + std::string(end)));
  EXPECT_EQ(run_tetrad({"train", "--resume", folder_.file("first")}).exit_code, 2);
  const Outcome moved = run_tetrad(
      {"train", "--resume", folder_.file("first"), "data.sources.b.path=" + folder_.file("moved")});
  EXPECT_EQ(moved.exit_code, 0) << moved.err;
}

/// … and with it said, the run is the same.
TEST_F(Training, WhatAutoStandsForIsRecorded) {
  ASSERT_EQ(run_tetrad(arguments(kLlama, "nvfp4", "run")).exit_code, 0);
  const auto taken = nlohmann::json::parse(read_file(folder_ / "run" / "run.json")).at("taken");
  EXPECT_EQ(taken.at("precision.rht.size"), "16");
  EXPECT_EQ(taken.at("train.seeds.data"), "3");
  EXPECT_FALSE(taken.contains("precision.high_precision.last")) << "it was said";
  Words said;
  for (const auto& [key, value] : taken.items()) said.push_back(key + "=" + value.get<std::string>());
  ASSERT_EQ(run_tetrad(arguments(kLlama, "nvfp4", "said", said)).exit_code, 0);
  expect_same_run("run", "said");
  EXPECT_FALSE(nlohmann::json::parse(read_file(folder_ / "said" / "run.json")).contains("taken"));
}

TEST_F(Training, TwoProcessesDoNotShareAFolder) {
  RunningTetrad first(arguments(kLlama, "bf16", "run", {"train.steps=1000000"}));
  while (!std::filesystem::exists(folder_ / "run" / "config.yaml") && !first.finished())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string config = read_file(folder_ / "run" / "config.yaml");
  EXPECT_EQ(run_tetrad(arguments(kLlama, "nvfp4", "run")).exit_code, 2);
  EXPECT_EQ(run_tetrad({"train", "--resume", folder_.file("run")}).exit_code, 2);
  EXPECT_EQ(read_file(folder_ / "run" / "config.yaml"), config);
  first.send(SIGKILL);
  first.wait();
}

/// The port that a run which has begun says it answers at; 0 if it ends before.
std::uint16_t metrics_port(const RunningTetrad& run) {
  const std::string before = "figures for Prometheus: http://127.0.0.1:";
  while (!run.finished()) {
    const std::string text = run.err();
    const std::size_t at = text.find(before);
    if (at != std::string::npos && text.find("/metrics\n", at) != std::string::npos)
      return static_cast<std::uint16_t>(std::stoi(text.substr(at + before.size())));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return 0;
}

TEST_F(Training, PrometheusIsToldWhatTheFilesSay) {
  constexpr std::int64_t kEvery = 50;
  RunningTetrad run(arguments(
      kLlama, "nvfp4", "run",
      {"train.steps=1000000", "run.metrics_address=0", "train.checkpoint.every=" + std::to_string(kEvery)}));
  const std::uint16_t port = metrics_port(run);
  ASSERT_NE(port, 0) << run.err();
  HttpClient client(port);
  const auto scrape = [&] { return parse_exposition(client.get("/metrics").body); };
  // At a step after which neither an evaluation nor a checkpoint is due, when the last checkpoint is done, so
  // that all figures belong together.
  const auto is_settled = [](const Exposition& figures) {
    if (!figures.has("tetrad_train_eval_loss")) return false;
    const auto step = static_cast<std::int64_t>(figures.value("tetrad_train_step"));
    const std::int64_t saved = step - step % kEvery;
    return step % 4 != 0 && saved > 0 && saved < step &&
           figures.value("tetrad_train_checkpoint_step") == static_cast<double>(saved);
  };
  Exposition figures = scrape();
  while (!is_settled(figures)) figures = scrape();
  EXPECT_NE(client.get("/metrics").head.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
            std::string::npos);
  EXPECT_NE(client.get("/").body.find("/metrics"), std::string::npos);
  EXPECT_EQ(client.get("/else").status, 404);
  EXPECT_EQ(client.post("/metrics", "").status, 405);
  EXPECT_EQ(client.post("/metrics", "a body").status, 413);

  const Outcome taken = run_tetrad(
      arguments(kLlama, "nvfp4", "other", {"run.metrics_address=127.0.0.1:" + std::to_string(port)}));
  EXPECT_EQ(taken.exit_code, 2) << taken.err;
  EXPECT_NE(taken.err.find("cannot listen"), std::string::npos) << taken.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "other"));

  // A client that has a connection open keeps nothing alive.
  HttpClient idle(port);
  EXPECT_EQ(idle.get("/").status, 200);
  run.send(SIGTERM);
  EXPECT_EQ(run.wait().exit_code, 5);

  const auto step = static_cast<std::int64_t>(figures.value("tetrad_train_step"));
  const auto line_of = [&](const char* kind) {
    std::ifstream in(folder_ / "run" / "metrics.jsonl");
    nlohmann::json found;
    for (std::string line; std::getline(in, line);)
      if (nlohmann::json entry = nlohmann::json::parse(line); entry["kind"] == kind && entry["step"] <= step)
        found = std::move(entry);
    return found;
  };
  const nlohmann::json train = line_of("train");
  ASSERT_EQ(train["step"], step);
  for (const auto& [name, key] : {std::pair("loss", "loss"),
                                  {"grad_norm", "grad_norm"},
                                  {"learning_rate", "lr"},
                                  {"tokens_per_second", "tokens_per_s"},
                                  {"tflops", "tflops"},
                                  {"step_seconds", "seconds"},
                                  {"memory_bytes", "memory_bytes"},
                                  {"tokens_total", "tokens"}})
    EXPECT_EQ(figures.value(std::string("tetrad_train_") + name), train[key].get<double>()) << name;
  EXPECT_EQ(figures.value("tetrad_train_eval_loss", {{"source", "a"}}), line_of("eval")["loss"]);
  EXPECT_EQ(figures.value("tetrad_train_checkpoint_step"), line_of("checkpoint")["step"]);
  EXPECT_EQ(figures.labels("tetrad_train_info").at("forward"), "nvfp4");
}

TEST_F(Training, WhoeverWatchesChangesNothing) {
  ASSERT_EQ(run_tetrad(arguments(kLlama, "nvfp4", "alone")).exit_code, 0);
  {
    RunningTetrad watched(arguments(kLlama, "nvfp4", "watched", {"run.metrics_address=127.0.0.1:0"}));
    const std::uint16_t port = metrics_port(watched);
    ASSERT_NE(port, 0) << watched.err();
    HttpClient client(port);
    while (client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n") && client.receive()) continue;
    EXPECT_EQ(watched.wait().exit_code, 0);
  }
  expect_same_run("alone", "watched");
  EXPECT_EQ(run_tetrad({"train", "--resume", folder_.file("watched"), "run.metrics_address="}).exit_code, 0)
      << "and may be left out when the run is resumed";
}

TEST_F(Training, RecomputationChangesNothingAndMayChange) {
  ASSERT_EQ(run_tetrad(arguments(kHybrid, "nvfp4", "whole")).exit_code, 0);
  const Outcome full = run_tetrad(arguments(kHybrid, "nvfp4", "full", {"train.recompute=full"}));
  ASSERT_EQ(full.exit_code, 0) << full.err;
  expect_same_run("whole", "full");

  run_tetrad(arguments(kHybrid, "nvfp4", "changed", {"train.recompute=ffn"}),
             {"TETRAD_FAILPOINTS=checkpoint.after_rename=kill@3"});
  const Outcome resumed = run_tetrad({"train", "--resume", folder_.file("changed"), "train.recompute=cheap"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_run("whole", "changed");
}

TEST_F(Training, ACheckpointCanBeUsed) {
  ASSERT_EQ(run_tetrad(arguments(kHybrid, "nvfp4", "run", {"precision.schedule=[]"})).exit_code, 0);
  const nlohmann::json last = metrics("run").back();
  ASSERT_EQ(last["kind"], "eval");

  // The same held-out sequences at the same precision: the same loss.
  const Outcome eval = run_tetrad({"eval", folder_.file("run"), "--data", folder_.file("a-heldout"),
                                   "--sequences", "3", "--batch", "2", "--json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  const double loss = nlohmann::json::parse(eval.out)["data"][folder_.file("a-heldout")]["loss"];
  EXPECT_NEAR(loss, last["loss"].get<double>(), 1e-2);  // another batch: other tensor scales

  write_file(folder_ / "ids.txt", "1 2 3 4 5\n7,8,9\n");
  const Words score = {"score", folder_.file("run"), "--tokens", folder_.file("ids.txt"), "--precision",
                       "f32"};
  Words with_files = score;
  with_files.insert(with_files.end(), {"--json", "--logits", folder_.file("new/logits.safetensors")});
  const Outcome scored = run_tetrad(with_files);
  ASSERT_EQ(scored.exit_code, 0) << scored.err;
  const nlohmann::json lines = nlohmann::json::parse(scored.out)["lines"];
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0]["logprobs"][0].is_null());
  EXPECT_EQ(lines[0]["logprobs"].size(), 5u);
  EXPECT_LT(lines[0]["sum"].get<double>(), 0);
  EXPECT_TRUE(std::filesystem::is_regular_file(folder_ / "new/logits.safetensors"));

  write_file(folder_ / "ids.txt", "1 2 3\n7 8 9\n");
  Words with_gradients = score;
  with_gradients.insert(with_gradients.end(), {"--gradients", folder_.file("newer/gradients.safetensors")});
  EXPECT_EQ(run_tetrad(with_gradients).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_regular_file(folder_ / "newer/gradients.safetensors"));
  EXPECT_EQ(run_tetrad({"plot", folder_.file("run"), "--svg", folder_.file("figures/loss.svg")}).exit_code,
            0);
  EXPECT_TRUE(std::filesystem::is_regular_file(folder_ / "figures/loss.svg"));

  for (const char* bad : {"1 2 64\n", "1 x\n", "\n", "-1\n"}) {
    write_file(folder_ / "ids.txt", bad);
    EXPECT_EQ(run_tetrad(score).exit_code, 2) << bad;
  }
  // Synthetic tokens are no text.
  EXPECT_EQ(run_tetrad({"generate", folder_.file("run"), "--prompt", "x"}).exit_code, 2);
  write_file(folder_ / "quiz.jsonl", R"({"question": "q", "choices": ["a", "b"], "answer": 0})");
  EXPECT_EQ(run_tetrad({"eval", folder_.file("run"), "--choices", folder_.file("quiz.jsonl")}).exit_code, 2);
  // Without anything said: the loss on what the run held out, by source.
  const Outcome own = run_tetrad({"eval", folder_.file("run"), "--json"});
  ASSERT_EQ(own.exit_code, 0) << own.err;
  const Outcome named =
      run_tetrad({"eval", folder_.file("run"), "--data", folder_.file("a-heldout"), "--json"});
  EXPECT_EQ(nlohmann::json::parse(own.out)["data"]["a"],
            nlohmann::json::parse(named.out)["data"][folder_.file("a-heldout")]);
  const Outcome nothing = run_tetrad({"eval", folder_.file("run"), "--checks"});
  EXPECT_EQ(nothing.exit_code, 0) << nothing.err;
  EXPECT_NE(nothing.out.find("no checks"), std::string::npos) << nothing.out;
}

TEST_F(Training, ChecksOfACheckpoint) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "call(" + std::to_string(i * 7919 % 1000) + ");\n";
  write_file(folder_ / "text.txt", text);
  const std::string source = folder_.file("text");
  ASSERT_EQ(
      run_tetrad({"data", "prepare", folder_.file("text.txt"), "-o", source, "--heldout", "0.2"}).exit_code,
      0);
  const Outcome trained =
      run_tetrad(arguments(kLlama, "bf16", "run",
                           {"model.vocab=256", "data.phases=[]", "data.tokenizer=bytes",
                            "data.sources={text: {path: " + source + ", heldout: " + source + "-heldout}}"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto eval = [&](const Words& more) {
    Words words = {"eval", folder_.file("run"), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run_tetrad(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  // Without --data, on what the run held out: 32 bytes hold brackets, but no fact and its question.
  const nlohmann::json own = eval({"--checks"});
  EXPECT_TRUE(own["data"].empty());
  ASSERT_EQ(own["checks"].size(), 1U);
  EXPECT_EQ(own["checks"][0]["name"], "text: closing brackets");
  EXPECT_EQ(own["checks"][0]["unit"], "accuracy");
  EXPECT_GT(own["checks"][0]["count"], 20);
  EXPECT_EQ(eval({"--checks", "--sequences", "2"})["checks"][0]["count"], 6);
  const nlohmann::json named = eval({"--checks", "--data", source, "--sequence", "128"});
  EXPECT_GT(named["data"][source]["loss"], 0);
  EXPECT_EQ(named["checks"][0]["name"], source + ": closing brackets");
  EXPECT_EQ(named["checks"].back()["name"], source + ": fact at 90 % of 128 tokens");

  // The model takes one of two choices: with the other as the answer, it is wrong.
  const auto accuracy = [&](int answer) {
    write_file(folder_ / "quiz.jsonl", R"({"question": "call(", "choices": ["1);", "x y"], "answer": )" +
                                           std::to_string(answer) + "}\n");
    const nlohmann::json result = eval({"--choices", folder_.file("quiz.jsonl")});
    EXPECT_EQ(result["checks"].size(), 3U);
    EXPECT_EQ(result["checks"][0]["name"], "quiz");
    return result["checks"][0]["value"].get<double>();
  };
  EXPECT_EQ(accuracy(0) + accuracy(1), 1);
  const Outcome table = run_tetrad({"eval", "--choices", folder_.file("quiz.jsonl"), folder_.file("run")});
  EXPECT_NE(table.out.find("quiz, calibration"), std::string::npos) << table.out;

  write_file(folder_ / "bad.jsonl", "\n{\"question\": 1}\n");
  const Outcome bad = run_tetrad({"eval", folder_.file("run"), "--choices", folder_.file("bad.jsonl")});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.err.find("bad.jsonl:2"), std::string::npos) << bad.err;
}

TEST_F(Training, TextIsGeneratedFromItsSeed) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the quick brown fox " + std::to_string(i * 7919 % 1000) + "\n";
  write_file(folder_ / "text.txt", text);
  ASSERT_EQ(run_tetrad({"data", "prepare", folder_.file("text.txt"), "-o", folder_.file("text")}).exit_code,
            0);
  const std::string source = folder_.file("text");
  const Outcome trained =
      run_tetrad(arguments(kLlama, "nvfp4", "run",
                           {"model.vocab=256", "data.sources={text: " + source + ", a: {heldout: ''}}",
                            "data.phases=[]", "data.tokenizer=bytes"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto generate = [&](const Words& more) {
    Words words = {"generate", folder_.file("run"), "--prompt", "the ", "--tokens", "20", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run_tetrad(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_EQ(generate({"--seed", "1"}), generate({"--seed", "1"}));
  EXPECT_NE(generate({"--seed", "1"}), generate({"--seed", "2"}));
  EXPECT_EQ(generate({"--temperature", "0", "--seed", "1"}), generate({"--temperature", "0", "--seed", "2"}));
  const Outcome checks = run_tetrad({"eval", folder_.file("run"), "--checks"});
  EXPECT_EQ(checks.exit_code, 2) << "it held nothing out";
  EXPECT_NE(checks.err.find("--data"), std::string::npos) << checks.err;
}

TEST_F(Training, ADryRunShowsEveryGemmAndTrainsNothing) {
  const Outcome dry = run_tetrad(arguments(kHybrid, "nvfp4", "dry", {"--dry-run"}));
  ASSERT_EQ(dry.exit_code, 0) << dry.err;
  for (const char* expected : {"blocks.0.in", "blocks.1.up", "blocks.2.qkv", "blocks.3.down", "hadamard 16",
                               "16x16", "parameters", "memory", "from 50 % of the tokens on"})
    EXPECT_NE(dry.out.find(expected), std::string::npos) << expected;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "dry"));
}

TEST_F(Training, ADryRunLooksAtEverything) {
  const Outcome dry = run_tetrad(
      arguments(kLlama, "nvfp4", "dry", {"--dry-run", "--price", "2.5", "precision.high_precision=none"}));
  ASSERT_EQ(dry.exit_code, 0) << dry.err;
  for (const char* expected :
       {"\na            4000 tokens, all below the vocabulary, read 0.28 times; ", " held out\n",
        "\nb            4000 tokens, all below the vocabulary, read 0.11 times; nothing held out\n",
        "of memory: it fits\n", "\ncheckpoints  ", "of the disk are free\n", " s per step, ",
        " at 2.5 an hour\n", "\nblocks.0.qkv … blocks.2.qkv (2)", "\nblocks.1.down … blocks.3.down (2)"})
    EXPECT_NE(dry.out.find(expected), std::string::npos) << expected << " in\n" << dry.out;
  EXPECT_EQ(dry.out.find("WARNING"), std::string::npos) << dry.out;

  // A layer that is kept is not the same as the others.
  const Outcome kept = run_tetrad(
      arguments(kLlama, "nvfp4", "dry",
                {"--dry-run", "precision.high_precision={first: 0, last: 0, match: [blocks.0.qkv]}"}));
  EXPECT_NE(kept.out.find("\nblocks.0.qkv  "), std::string::npos) << kept.out;
  EXPECT_NE(kept.out.find("\nblocks.2.qkv  "), std::string::npos) << kept.out;

  // What the run would refuse, with all the rest there.
  for (const auto& [change, word] : {std::pair("data.sources.b.path=nowhere", "nowhere"),
                                     std::pair("model.vocab=32", "vocabulary of 64")}) {
    const Outcome refused = run_tetrad(arguments(kLlama, "nvfp4", "dry", {"--dry-run", change}));
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_NE(refused.out.find("REFUSED: "), std::string::npos) << refused.out;
    EXPECT_NE(refused.out.find(word), std::string::npos) << refused.out;
    EXPECT_NE(refused.out.find("\nparameters "), std::string::npos) << refused.out;
  }
}

TEST_F(Training, WarningsAndRefusalsAreThoseOfTheDryRun) {
  const Words doubtful = {"data.phases=[{until: 1, mix: {a: 1}}]",
                          "data.sources.a.heldout=" + folder_.file("a"), "train.steps=160",
                          "train.checkpoint.every=1000", "train.eval.every=1000"};
  Words dry = doubtful;
  dry.emplace_back("--dry-run");
  const std::string said = run_tetrad(arguments(kLlama, "bf16", "dry", dry)).out;
  const Outcome trained = run_tetrad(arguments(kLlama, "bf16", "run", doubtful));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  for (const char* warning : {"WARNING: data.sources.b is in no phase",
                              "WARNING: data.sources.a.heldout has the very tokens of data.sources.a",
                              "WARNING: data.sources.a has 4000 tokens, and the run reads them 5."}) {
    EXPECT_NE(said.find(warning), std::string::npos) << warning << " in\n" << said;
    EXPECT_NE(trained.err.find(warning), std::string::npos) << warning << " in\n" << trained.err;
  }
  for (const char* mistake :
       {"precision.high_precision.match=[blocks.9.*]", "precision.high_precision.last=5"}) {
    for (const bool is_dry : {false, true}) {
      Words words = {mistake};
      if (is_dry) words.emplace_back("--dry-run");
      const Outcome refused = run_tetrad(arguments(kLlama, "nvfp4", "never", words));
      EXPECT_EQ(refused.exit_code, 2) << refused.err;
      EXPECT_NE(refused.err.find("precision.high_precision"), std::string::npos) << refused.err;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "never"));
}

TEST_F(Training, ADryRunTellsTheMemoryOfADeviceThatIsNotThere) {
  const auto memory = [&](const Words& more) {
    Words words = {"--dry-run", "train.batch=16", "train.microbatch=16", "train.sequence=512"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome dry = run_tetrad(arguments(kHybrid, "nvfp4", "dry", words), {"CUDA_VISIBLE_DEVICES=-1"});
    EXPECT_EQ(dry.exit_code, 2) << "the data has no such sequence";
    const std::size_t at = dry.out.find("\nmemory ");
    return at == std::string::npos ? "" : dry.out.substr(at, dry.out.find('\n', at + 1) - at);
  };
  EXPECT_NE(memory({"run.backend=cpu"}).find(" on cpu "), std::string::npos);
  EXPECT_NE(memory({"run.backend=cuda"}).find(" on cuda "), std::string::npos);
  EXPECT_NE(memory({"run.backend=cuda"}), memory({"run.backend=cuda", "train.recompute=full"}));
}

TEST_F(Training, OptionsStandForKeys) {
  Words words = arguments(kLlama, "bf16", "run", {"--backend", "cpu", "--threads", "1"});
  words[2] = "-o";
  const Outcome outcome = run_tetrad(words);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string config = read_file(folder_ / "run" / "config.yaml");
  EXPECT_NE(config.find("backend: cpu"), std::string::npos) << config;
  EXPECT_NE(config.find("threads: 1"), std::string::npos) << config;
  EXPECT_NE(outcome.err.find("cpu backend, 1 threads"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace tetrad::testing
