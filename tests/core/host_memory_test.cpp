// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/host_memory.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace tetrad::testing::host_memory_test {
namespace {

TEST(HostMemory, IsTheLeastOfTheMachineAndItsControlGroups) {
  const TemporaryFolder root;
  const auto put = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root / file).parent_path());
    write_file(root / file, text);
  };
  EXPECT_FALSE(available_memory(root.path()));
  put("proc/meminfo", "MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n");
  EXPECT_EQ(available_memory(root.path()), 8000000LL * 1024);
  put("proc/self/cgroup", "0::/jobs/seven\n");
  put("sys/fs/cgroup/jobs/seven/memory.max", "max\n");
  put("sys/fs/cgroup/jobs/seven/memory.current", "1000\n");
  EXPECT_EQ(available_memory(root.path()), 8000000LL * 1024);
  put("sys/fs/cgroup/jobs/memory.max", "5000000\n");
  put("sys/fs/cgroup/jobs/memory.current", "3000000\n");
  EXPECT_EQ(available_memory(root.path()), 2000000);
  put("sys/fs/cgroup/jobs/memory.stat", "anon 5\ninactive_file 500000\n");
  EXPECT_EQ(available_memory(root.path()), 2500000);
}

TEST(HostMemory, ThisMachineHasSome) { EXPECT_GT(available_memory().value_or(1), 0); }

}  // namespace
}  // namespace tetrad::testing::host_memory_test
