// SPDX-License-Identifier: Apache-2.0
// Which kernel a product takes is decided once, by whoever comes first. No device is needed.

#include "tetrad/backend/cuda/gemm/algorithm_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "support/contexts.h"
#include "support/files.h"

namespace tetrad::testing {
namespace {

cublasLtMatmulAlgo_t algorithm(std::uint64_t word) {
  cublasLtMatmulAlgo_t result = {};
  std::ranges::fill(result.data, word);
  return result;
}

class AlgorithmCaches : public WithEmptyCache {
 protected:
  /// What a cache says of a problem that it would decide with `word`.
  static std::uint64_t ask(cuda::AlgorithmCache& cache, std::uint64_t word,
                           const std::string& problem = "problem") {
    return cache.find_or_choose(problem, [&] { return algorithm(word); }).data[7];
  }
  /// A new process's.
  std::uint64_t ask_another(std::uint64_t word, const std::string& run = {}) {
    cuda::AlgorithmCache cache("device");
    if (!run.empty()) cache.keep_in(folder_ / run);
    return ask(cache, word);
  }
  std::filesystem::path only_file(const std::string& folder) {
    return std::filesystem::directory_iterator(folder_ / folder)->path();
  }
};

TEST_F(AlgorithmCaches, TheFirstDecidesForAll) {
  cuda::AlgorithmCache first("device");
  cuda::AlgorithmCache beside("device");
  EXPECT_EQ(ask(first, 1), 1);
  EXPECT_EQ(ask(beside, 2), 1);
  EXPECT_EQ(ask_another(3), 1);
  cuda::AlgorithmCache other_device("another");
  EXPECT_EQ(ask(other_device, 4), 4);
}

TEST_F(AlgorithmCaches, ARunTakesItsChoicesToOtherMachines) {
  EXPECT_EQ(ask_another(1), 1);
  EXPECT_EQ(ask_another(2, "run"), 1) << "begins with what the machine knows";
  std::filesystem::remove_all(folder_ / "cache");
  EXPECT_EQ(ask_another(3), 3) << "another machine";
  EXPECT_EQ(ask_another(4, "run"), 1) << "which goes on with the run";
  EXPECT_EQ(ask_another(5, "another-run"), 3);
}

TEST_F(AlgorithmCaches, WhatWasChosenBeforeARunDoesNotCountInIt) {
  EXPECT_EQ(ask_another(1, "run"), 1);
  std::filesystem::remove_all(folder_ / "cache");
  cuda::AlgorithmCache cache("device");
  EXPECT_EQ(ask(cache, 2), 2);
  cache.keep_in(folder_ / "run");
  EXPECT_EQ(ask(cache, 3), 1);
}

TEST_F(AlgorithmCaches, ALineThatACrashLeftIncompleteCostsOneChoice) {
  EXPECT_EQ(ask_another(1), 1);
  const std::filesystem::path file = only_file("cache");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 10);
  EXPECT_EQ(ask_another(2), 2);
  EXPECT_EQ(ask_another(3), 2) << "the line after the incomplete one is whole";
}

TEST_F(AlgorithmCaches, WithoutAFileEachDecidesForItself) {
  write_file(folder_.file("cache"), "not a folder");
  cuda::AlgorithmCache cache("device");
  EXPECT_EQ(ask(cache, 1), 1);
  EXPECT_EQ(ask(cache, 2), 1);
  EXPECT_EQ(ask_another(3), 3);
}

}  // namespace
}  // namespace tetrad::testing
