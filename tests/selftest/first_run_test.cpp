// SPDX-License-Identifier: Apache-2.0
// What happens before the first run on a GPU, with CPUs that call themselves one and have faults.

#include "tetrad/selftest/first_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "selftest/faulty_backend.h"
#include "support/cpu.h"
#include "support/files.h"
#include "tetrad/core/error.h"

namespace tetrad::testing::first_run_test {
namespace {

class Lines final : public Display {
 public:
  void say(const std::string& line) override { text += line + "\n"; }
  bool has(const std::string& words) const { return text.find(words) != std::string::npos; }
  std::string text;
};

/// A GPU whose native products, or whose everything, have a fault.
struct Gpu {
  std::string device = "Imaginary GPU";
  std::string native_fault = {};
  std::string fault = {};
  std::string build = "build-1";
  int opened = 0;

  bool may_use_native(const std::filesystem::path& folder, Lines& lines) {
    const auto open = [&](bool native) {
      ++opened;
      auto backend = std::make_unique<FaultyBackend>(cpu_backend());
      backend->device = device;
      backend->planted = native && !native_fault.empty() ? native_fault : fault;
      return backend;
    };
    // Those that meet the faults below: all of them would take long.
    std::vector<selftest::Check> checks = selftest::product_checks();
    std::ranges::move(selftest::mamba2_checks(), std::back_inserter(checks));
    return selftest::may_use_native({open, cpu_backend(), build, folder, lines, checks});
  }
};

constexpr const char* kProduct = "gemm: nvfp4 1x16, nearest by nvfp4 16x16, nearest transposed, F32";

TEST(FirstRun, AKnownKindIsTrusted) {
  const TemporaryFolder folder;
  Gpu gpu{.device = "NVIDIA H200", .native_fault = kProduct};
  Lines lines;
  EXPECT_TRUE(gpu.may_use_native(folder.path(), lines));
  EXPECT_EQ(lines.text, "");
  EXPECT_TRUE(selftest::is_known(cpu_backend()));
}

TEST(FirstRun, AHealthyGpuIsTestedOnceForEachBuild) {
  const TemporaryFolder folder;
  Gpu gpu;
  Lines first;
  EXPECT_TRUE(gpu.may_use_native(folder.path(), first));
  EXPECT_TRUE(first.has("Imaginary GPU")) << first.text;
  EXPECT_TRUE(first.has("checks passed")) << first.text;
  gpu.native_fault = kProduct;  // nobody looks again
  Lines second;
  EXPECT_TRUE(gpu.may_use_native(folder.path(), second));
  EXPECT_EQ(second.text, "");
  gpu.build = "build-2";
  Lines third;
  EXPECT_FALSE(gpu.may_use_native(folder.path(), third));
}

TEST(FirstRun, BrokenNativeProductsAreReplacedWithAWarningEveryTime) {
  const TemporaryFolder folder;
  Gpu gpu{.native_fault = kProduct};
  Lines first;
  EXPECT_FALSE(gpu.may_use_native(folder.path(), first));
  EXPECT_TRUE(first.has("gemm")) << "what failed is named: " << first.text;
  EXPECT_TRUE(first.has("WARNING")) << first.text;
  EXPECT_EQ(gpu.opened, 2);
  Lines second;
  EXPECT_FALSE(gpu.may_use_native(folder.path(), second));
  EXPECT_TRUE(second.has("WARNING")) << second.text;
  EXPECT_EQ(gpu.opened, 3) << "it remembers";
}

TEST(FirstRun, WhatHasNoOtherPathIsRefusedAndNotRemembered) {
  const TemporaryFolder folder;
  Gpu gpu{.fault = "scan backward: db, BF16"};
  Lines lines;
  try {
    gpu.may_use_native(folder.path(), lines);
    FAIL() << "trusted";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("scan backward"), std::string::npos) << what;
    EXPECT_NE(what.find("run.selftest=off"), std::string::npos) << what;
    EXPECT_EQ(error.exit_code(), ExitCode::failure);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace tetrad::testing::first_run_test
