// SPDX-License-Identifier: Apache-2.0
// Whoever is watched computes the same, and what is said of it adds up.

#include "profile.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/cpu.h"
#include "tetrad/selftest/selftest.h"

namespace tetrad::testing {
namespace {

TEST(ProfilingBackend, ComputesWhatTheOneBelowComputes) {
  bench::ProfilingBackend profile(cpu_backend());
  const selftest::Report report =
      selftest::run(profile, cpu_backend(), selftest::all_checks(), {.brief = true, .same_bytes = true});
  EXPECT_GT(report.checks(), 50U);
  for (const selftest::Failure& failure : report.failures)
    ADD_FAILURE() << failure.operation << ": " << failure.check << ": " << failure.what;
}

TEST(ProfilingBackend, AddsUpByKind) {
  bench::ProfilingBackend profile(cpu_backend());
  const std::int64_t rows = 256;
  const std::int64_t depth = 512;
  Tensor a = profile.make_tensor(DType::f32, rows, depth);
  Tensor out = profile.make_tensor(DType::f32, rows, rows);
  profile.take();

  const HostTimeline::Clock::time_point begin = HostTimeline::Clock::now();
  profile.set_to_zero(a.bytes());
  for (int i = 0; i < 3; ++i) profile.gemm(a.const_view(), a.const_view(), out.view(), Accumulate::no);
  const double all = std::chrono::duration<double>(HostTimeline::Clock::now() - begin).count();

  const std::vector<bench::KindOfOperation> kinds = profile.take();
  ASSERT_EQ(kinds.size(), 2U);
  EXPECT_GE(kinds[0].seconds, kinds[1].seconds) << "the longest first";
  const auto products = std::ranges::find(kinds, "product F32 by F32", &bench::KindOfOperation::name);
  ASSERT_NE(products, kinds.end());
  EXPECT_EQ(products->calls, 3);
  EXPECT_EQ(products->flop, 3.0 * 2 * rows * rows * depth);
  EXPECT_GT(products->seconds, 0);
  EXPECT_LE(kinds[0].seconds + kinds[1].seconds, all);
  EXPECT_TRUE(profile.take().empty()) << "what was told is forgotten";
}

}  // namespace
}  // namespace tetrad::testing
