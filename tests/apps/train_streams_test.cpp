// SPDX-License-Identifier: Apache-2.0
// What a run says cannot end it: streams that are closed, full or read by nobody, disks without room for its
// lines, and the signals that come with all that.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "support/files.h"
#include "support/process.h"
#include "support/training.h"

namespace tetrad::testing::train_streams_test {
namespace {

constexpr const char* kModel =
    "model: {pattern: \"*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 48, vocab: 64, tied: "
    "true}\n";

class Streams : public Training {
 protected:
  /// The exit code of the program with these arguments and what a shell adds to them.
  int in_shell(const Words& arguments, const std::string& redirection) {
    std::string command = TETRAD_PROGRAM;
    for (const std::string& word : arguments) command += " '" + word + "'";
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread is there
    const int status = std::system((command + " " + redirection).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_F(Streams, StderrMayBeClosedFullOrLeft) {
  ASSERT_EQ(run_tetrad(arguments(kModel, "bf16", "whole")).exit_code, 0);
  int i = 0;
  for (const char* redirection : {"2>&-", "2>/dev/full", "1>&- 2>&- 0<&-"}) {
    SCOPED_TRACE(redirection);
    const std::string run = "run-" + std::to_string(i++);
    EXPECT_EQ(in_shell(arguments(kModel, "bf16", run), redirection), 0);
    expect_same_run("whole", run);
  }
  // The reader goes away after the first line; the run ends some time after the pipe.
  in_shell(arguments(kModel, "bf16", "left"), "2>&1 | head -n 1 >/dev/null");
  expect_same_run("whole", "left");
}

TEST_F(Streams, LinesWaitForADiskWithRoom) {
  ASSERT_EQ(run_tetrad(arguments(kModel, "bf16", "whole")).exit_code, 0);
  const Outcome outcome = run_tetrad(arguments(kModel, "bf16", "full"),
                                     {"TETRAD_FAILPOINTS=metrics.write=enospc@4,log.write=enospc@3,"
                                      "events.write=enospc@2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("wait in memory"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("log.txt cannot be written"), std::string::npos) << outcome.err;
  expect_same_run("whole", "full");
}

TEST_F(Streams, SignalsThatEndASessionSaveFirst) {
  constexpr std::int64_t kManySteps = 300;
  const Words long_run = {"train.steps=" + std::to_string(kManySteps), "train.checkpoint.every=100",
                          "train.eval.every=100"};
  ASSERT_EQ(run_tetrad(arguments(kModel, "bf16", "whole", long_run)).exit_code, 0);
  for (const int signal : {SIGHUP, SIGXCPU}) {
    const std::string run = "run-" + std::to_string(signal);
    RunningTetrad running(arguments(kModel, "bf16", run, long_run));
    while (!std::filesystem::exists(folder_ / run / "checkpoints" / "step-0") && !running.finished())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    running.send(signal);
    const Outcome stopped = running.wait();
    EXPECT_EQ(stopped.exit_code, 5) << stopped.err;
    EXPECT_NE(stopped.err.find("once more ends it at once"), std::string::npos) << stopped.err;
    finish(run);
    expect_same_run("whole", run, kManySteps);
  }
}

TEST_F(Streams, SigUsr1AsksForACheckpoint) {
  RunningTetrad running(
      arguments(kModel, "bf16", "run", {"train.steps=1000000", "train.checkpoint.every=1000000"}));
  const auto count = [&] {
    std::size_t result = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "run" / "checkpoints", ignored))
      result +=
          entry.path().filename().native().find('.') == std::string::npos && entry.is_directory() ? 1 : 0;
    return result;
  };
  while (count() < 1 && !running.finished()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  running.send(SIGUSR1);
  while (count() < 2 && !running.finished()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(running.finished());
  running.send(SIGKILL);
  running.wait();
}

TEST_F(Streams, ASignalStopsWithinAStep) {
  // One step takes so many microbatches that it cannot be done before the signal is looked at.
  const Words one_step = {"train.steps=2", "train.batch=100000", "train.microbatch=1"};
  RunningTetrad running(arguments(kModel, "bf16", "run", one_step));
  while (!std::filesystem::exists(folder_ / "run" / "checkpoints" / "step-0") && !running.finished())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  running.send(SIGINT);
  const Outcome stopped = running.wait();
  EXPECT_EQ(stopped.exit_code, 5) << stopped.err;
  EXPECT_NE(stopped.err.find("after step 0"), std::string::npos) << stopped.err;
}

}  // namespace
}  // namespace tetrad::testing::train_streams_test
