// SPDX-License-Identifier: Apache-2.0
// Where a run's memory lies changes nothing that it computes, and may change from one day to the next.

#include <fmt/format.h>

#include <tuple>

#include "support/training.h"

namespace tetrad::testing::train_memory_test {
namespace {

/// Wide enough for moments that are worth moving.
constexpr const char* kLlama =
    "model: {pattern: \"*-*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 2048, vocab: 64, tied: "
    "true}\n";

/// Enough blocks of a kind for some of them to keep all that they read and some nothing.
constexpr const char* kLongLlama =
    "model: {pattern: \"*-*-*-*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 512, vocab: 64, "
    "tied: "
    "true}\n";
constexpr const char* kLongHybrid =
    "model: {pattern: \"M-M*-M-M-\", hidden: 32, heads: 2, kv_heads: 2, head_dim: 16, ffn: 512, activation: "
    "squared_relu, vocab: 64, tied: false, rope: none, mamba: {heads: 4, head_dim: 16, groups: 2, state: 15, "
    "chunk: 8}}\n";

class MemoryPlans : public Training {
 protected:
  Words plan(const std::string& run, const std::string& memory, const std::string& recompute = "none") {
    return arguments(kLlama, "nvfp4", run, {"train.memory=" + memory, "train.recompute=" + recompute});
  }
};

TEST_F(MemoryPlans, GiveTheSameRun) {
  ASSERT_EQ(run_tetrad(plan("device", "device")).exit_code, 0);
  const Outcome host = run_tetrad(plan("host", "host", "auto"));
  ASSERT_EQ(host.exit_code, 0) << host.err;
  EXPECT_NE(host.err.find("pinned on the host"), std::string::npos) << host.err;
  expect_same_run("device", "host");
}

TEST_F(MemoryPlans, ThatKeepCodesAndMoveTheResidualStreamGiveTheSameRun) {
  for (const auto& [family, model] : {std::pair("llama", kLlama), std::pair("hybrid", kLongHybrid)}) {
    const std::string plain = std::string(family) + "-plain";
    const std::string moved = std::string(family) + "-moved";
    ASSERT_EQ(run_tetrad(arguments(model, "nvfp4", plain, {"train.memory=device"})).exit_code, 0);
    const Outcome killed =
        run_tetrad(arguments(model, "nvfp4", moved, {"train.memory={weights: codes, residual: host}"}),
                   {"TETRAD_FAILPOINTS=metrics.write=kill@8"});
    ASSERT_EQ(killed.exit_code, -1) << killed.err;
    EXPECT_NE(killed.err.find("moments on the device; residual stream on the host, "), std::string::npos);
    EXPECT_NE(killed.err.find("; weights as codes; recompute none"), std::string::npos) << killed.err;
    const Outcome resumed =
        run_tetrad({"train", "--resume", folder_.file(moved), "train.memory.weights=values"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(resumed.err.find("weights as codes"), std::string::npos) << resumed.err;
    expect_same_run(plain, moved);
  }
}

TEST_F(MemoryPlans, ThatRecomputeSomeBlocksGiveTheSameRun) {
  for (const auto& [family, model, saved, chosen] :
       {std::tuple("llama", kLongLlama, 0.35, "full in 3 of 4 feed-forward blocks"),
        std::tuple("hybrid", kLongHybrid, 0.1,
                   "cheap in 1 of 4 feed-forward blocks, full in 2 of 4 Mamba-2 blocks")}) {
    const std::string all = std::string(family) + "-all";
    const std::string some = std::string(family) + "-some";
    ASSERT_EQ(run_tetrad(arguments(model, "nvfp4", all)).exit_code, 0);
    const Outcome shown = run_tetrad(arguments(model, "nvfp4", all, {"--dry-run"}));
    const double megabytes = std::stod(shown.out.substr(shown.out.find("memory       ") + 13));
    const std::string room = fmt::format("run.gpu_memory={}", (megabytes - saved) / 1e3);
    const Outcome mixed = run_tetrad(arguments(model, "nvfp4", some, {"train.recompute=auto", room}),
                                     {"TETRAD_FAILPOINTS=metrics.write=kill@8"});
    ASSERT_EQ(mixed.exit_code, -1) << mixed.err;
    EXPECT_NE(mixed.err.find(chosen), std::string::npos) << mixed.err;
    const Outcome resumed = run_tetrad({"train", "--resume", folder_.file(some), "run.gpu_memory=0"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_NE(resumed.err.find("recompute none"), std::string::npos) << resumed.err;
    expect_same_run(all, some);
  }
}

TEST_F(MemoryPlans, MayChangeWhenARunGoesOn) {
  ASSERT_EQ(run_tetrad(plan("whole", "device")).exit_code, 0);
  ASSERT_EQ(run_tetrad(plan("moved", "host"), {"TETRAD_FAILPOINTS=metrics.write=kill@8"}).exit_code, -1);
  const Outcome resumed =
      run_tetrad({"train", "--resume", folder_.file("moved"), "train.memory=device", "train.recompute=full"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_run("whole", "moved");
}

TEST_F(MemoryPlans, AFullHostIsSaidBeforeTheFirstStep) {
  for (const char* memory : {"host", "{residual: host}"}) {
    const Outcome refused = run_tetrad(plan("full", memory), {"TETRAD_FAILPOINTS=host.allocate=enospc"});
    EXPECT_EQ(refused.exit_code, 1) << refused.err;
    EXPECT_NE(refused.err.find("no room"), std::string::npos) << refused.err;
  }
}

/// What was updated by half is never saved.
TEST_F(MemoryPlans, AFaultWhileMomentsOrTheResidualStreamMoveCostsNothing) {
  ASSERT_EQ(run_tetrad(plan("whole", "device")).exit_code, 0);
  for (const char* memory : {"{moments: host, residual: device}", "{moments: device, residual: host}"}) {
    for (const char* fault : {"kill@1", "kill@57", "enospc@16", "eio@57", "enomem@1"}) {
      SCOPED_TRACE(std::string(memory) + " " + fault);
      const Outcome struck =
          run_tetrad(plan("struck", memory), {std::string("TETRAD_FAILPOINTS=offload.copy=") + fault});
      const bool was_killed = std::string_view(fault).starts_with("kill");
      EXPECT_EQ(struck.exit_code, was_killed ? -1 : 1) << struck.err;
      EXPECT_EQ(struck.err.find("cannot be copied") == std::string::npos, was_killed) << struck.err;
      finish("struck");
      expect_same_run("whole", "struck");
      std::filesystem::remove_all(folder_ / "struck");
    }
  }
}

TEST_F(MemoryPlans, AreShownForMachinesThatAreNotHere) {
  write_file(folder_.file("8b.yaml"),
             "model: llama3-8b\nprecision: nvfp4\ndata: {sources: {a: " + folder_.file("a") +
                 "}}\ntrain: {batch: 32, microbatch: 1, sequence: 8192, steps: 9}\n");
  const Outcome shown = run_tetrad({"train", "--dry-run", folder_.file("8b.yaml"), "run.backend=cuda",
                                    "run.gpu_memory=140", "run.host_memory=100"});
  EXPECT_NE(shown.out.find("GB pinned on the host"), std::string::npos) << shown.out << shown.err;
  EXPECT_NE(shown.out.find("describe another machine"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find(" s; residual stream on the host, 4.2 GB pinned; recompute none"),
            std::string::npos)
      << "no part of a step of unknown length\n"
      << shown.out;
  EXPECT_NE(shown.out.find("140.000 GB of memory, 100.000 GB of the host's: it fits"), std::string::npos)
      << shown.out;
}

}  // namespace
}  // namespace tetrad::testing::train_memory_test
