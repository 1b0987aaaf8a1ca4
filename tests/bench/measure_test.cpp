// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tetrad/ops/backend.h"

namespace tetrad::bench {
namespace {

TEST(FastestSeconds, LeavesOutWhatIsLoadedAtFirst) {
  int calls = 0;
  const double seconds = fastest_seconds(cpu_backend(), [&] {
    if (calls++ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  });
  EXPECT_GT(calls, 1);
  EXPECT_LT(seconds, 0.1);
}

TEST(FastestSeconds, EndsSoonWhereWorkIsSlow) {
  int calls = 0;
  const double seconds = fastest_seconds(cpu_backend(), [&] {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  EXPECT_EQ(calls, 2);
  EXPECT_GE(seconds, 0.2);
}

}  // namespace
}  // namespace tetrad::bench
