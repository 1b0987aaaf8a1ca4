// SPDX-License-Identifier: Apache-2.0
// Several ranks on one GPU, over NCCL and through the host: the bits of one rank.

#include <gtest/gtest.h>

#include <string>

#include "support/process.h"
#include "support/ranks.h"
#include "support/training.h"

namespace tetrad::testing::train_ranks_on_device_test {
namespace {

// Sizes of the device's fast kernels, with a vocabulary and rows that four ranks do not divide evenly.
constexpr const char* kLlama =
    "model: {pattern: \"*-*-\", hidden: 128, heads: 2, kv_heads: 1, head_dim: 64, ffn: 272, activation: "
    "swiglu, vocab: 67, tied: true}\n";
constexpr const char* kHybrid =
    "model: {pattern: \"M-*-\", hidden: 128, heads: 2, kv_heads: 2, head_dim: 64, ffn: 272, activation: "
    "squared_relu, vocab: 67, tied: false, rope: none, mamba: {heads: 16, head_dim: 64, groups: 2, state: "
    "64, chunk: 64}}\n";

/// The arguments after it run with a host of NCCL's own for each rank: several ranks on one GPU are nothing
/// that NCCL would allow on one host.
constexpr const char* kOwnHost = "NCCL_HOSTID=rank-$OMPI_COMM_WORLD_RANK exec \"$0\" \"$@\"";

class RanksOnDevice : public TrainingOfRanks, public ::testing::WithParamInterface<Family> {
 protected:
  RanksOnDevice() : TrainingOfRanks("cuda", /*sequence=*/128) {}

  Outcome run_on_one_gpu(int ranks, const Words& arguments, const std::string& transport) {
    Words words = launcher(ranks);
    words.insert(words.end(), {"sh", "-c", kOwnHost});
    return RunningTetrad(arguments,
                         {"TETRAD_SHARED_GPU=1", "TETRAD_TRANSPORT=" + transport, "NCCL_SOCKET_IFNAME=lo",
                          own_choices()},
                         {}, words)
        .wait();
  }

  /// Which kernel a product takes is chosen by time. Tests beside this one would change the choice that they
  /// share.
  std::string own_choices() { return "TETRAD_CACHE=" + folder_.file("cache"); }

  void leave_the_same_files(const std::string& zero);
};

void RanksOnDevice::leave_the_same_files(const std::string& zero) {
  const Outcome alone = run_tetrad(
      run_of(GetParam().model, GetParam().recipe, "run", {"parallel.zero=" + zero}), {own_choices()});
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const auto expected = files("run");
  const auto expected_metrics = metrics("run");
  ASSERT_TRUE(expected.contains("model.safetensors") && expected.contains("optimizer.safetensors"));
  struct Case {
    int ranks;
    std::string transport;
    std::string name;
  };
  for (const Case& with :
       {Case{4, "best", "nccl"}, Case{2, "best", "nccl"}, Case{4, "host", "host-staged"}}) {
    SCOPED_TRACE(std::to_string(with.ranks) + " ranks over " + with.name);
    rewind("run");
    const Outcome together =
        run_on_one_gpu(with.ranks, {"train", "--resume", folder_.file("run")}, with.transport);
    ASSERT_EQ(together.exit_code, 0) << together.err;
    EXPECT_NE(together.err.find(std::to_string(with.ranks) + " ranks over " + with.name), std::string::npos)
        << together.err;
    for (const auto& [name, contents] : expected) EXPECT_TRUE(files("run")[name] == contents) << name;
    EXPECT_EQ(metrics("run"), expected_metrics);
  }
}

TEST_P(RanksOnDevice, LeaveTheSameFiles) { leave_the_same_files("0"); }
TEST_P(RanksOnDevice, LeaveTheSameFilesWhereTheyShareWeights) { leave_the_same_files("1"); }
TEST_P(RanksOnDevice, LeaveTheSameFilesWhereTheyShareGradients) { leave_the_same_files("2"); }
TEST_P(RanksOnDevice, LeaveTheSameFilesWhereTheyShareEverything) { leave_the_same_files("3"); }

INSTANTIATE_TEST_SUITE_P(All, RanksOnDevice,
                         ::testing::Values(Family{"llama_bf16", kLlama, "bf16"},
                                           Family{"llama_nvfp4", kLlama, "nvfp4"},
                                           Family{"hybrid_bf16", kHybrid, "bf16"},
                                           Family{"hybrid_nvfp4", kHybrid, "nvfp4"}),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace tetrad::testing::train_ranks_on_device_test
