// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/failpoint.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

class Failpoint : public ::testing::Test {
 protected:
  ~Failpoint() override { set_failpoints(""); }
};

/// The exit code of a child that runs `body`, or minus the signal that ended it.
template <typename Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST_F(Failpoint, NamesAreDistinct) {
  EXPECT_EQ(std::set<std::string_view>(kFailpoints.begin(), kFailpoints.end()).size(), kFailpoints.size());
}

TEST_F(Failpoint, DoesNothingUnlessArmed) {
  set_failpoints("");
  for (const std::string_view name : kFailpoints) EXPECT_EQ(failpoint(name), 0);
  set_failpoints("file.write=eio");
  EXPECT_EQ(failpoint("file.fsync"), 0);
}

TEST_F(Failpoint, ActsEveryTimeOrAtTheNthTime) {
  set_failpoints("file.write=eio,file.fsync=enospc@3");
  EXPECT_EQ(failpoint("file.write"), EIO);
  EXPECT_EQ(failpoint("file.write"), EIO);
  for (const int expected : {0, 0, ENOSPC, 0, 0}) EXPECT_EQ(failpoint("file.fsync"), expected);
  EXPECT_EQ(failpoint_hits("file.write"), 2);
  EXPECT_EQ(failpoint_hits("file.fsync"), 5);
  EXPECT_EQ(failpoint_hits("file.close"), 0);
  errno = 0;
  EXPECT_TRUE(failpoint_fails("file.write"));
  EXPECT_EQ(errno, EIO);
  EXPECT_FALSE(failpoint_fails("file.close"));
}

TEST_F(Failpoint, MakesCallsSlow) {
  set_failpoints("file.write=slow,file.write=enomem@2");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(failpoint("file.write"), 0);
  EXPECT_EQ(failpoint("file.write"), ENOMEM);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(10));
}

TEST_F(Failpoint, Kills) {
  const auto reach_twice = [] {
    set_failpoints("file.rename=kill@2");
    failpoint("file.rename");
    failpoint("file.rename");
    return 0;
  };
  EXPECT_EQ(in_child(reach_twice), -SIGKILL);
}

TEST_F(Failpoint, ActsOnOneRank) {
  set_failpoints("file.write=eio@rank2,file.fsync=eio@2@rank2,file.close=eio@rank2@2");
  EXPECT_EQ(failpoint("file.write"), 0);
  set_failpoint_rank(2);
  EXPECT_EQ(failpoint("file.write"), EIO);
  for (const int expected : {0, EIO, 0}) EXPECT_EQ(failpoint("file.fsync"), expected);
  for (const int expected : {0, EIO, 0}) EXPECT_EQ(failpoint("file.close"), expected);
  set_failpoint_rank(0);
  EXPECT_EQ(failpoint("file.write"), 0);
}

TEST_F(Failpoint, HangsWhileOtherThreadsGoOn) {
  const auto hang = [] {
    set_failpoints("file.rename=hang");
    std::thread([] { failpoint("file.rename"); }).detach();
    while (failpoint_hits("file.rename") == 0) std::this_thread::yield();
    failpoint("file.write");
    ::alarm(1);
    failpoint("file.rename");
    return 0;
  };
  EXPECT_EQ(in_child(hang), -SIGALRM);
}

TEST_F(Failpoint, RefusesWhatMakesNoSense) {
  for (const std::string_view text :
       {"file.write", "=kill", "nowhere=kill", "file.write=", "file.write=explode", "file.write=kill@0",
        "file.write=kill@", "file.write=kill@-1", "file.write=kill@2x", "file.write=kill@rank",
        "file.write=kill@rank-1", "file.write=kill@rank1x", "file.write=kill@2@",
        "file.write=kill,,file.write=kill"}) {
    EXPECT_THROW(set_failpoints(text), Error) << text;
  }
  EXPECT_THROW(set_failpoints("nowhere=kill"), Error);
  set_failpoints("file.write=eio");
  EXPECT_THROW(failpoint("nowhere"), Error);
}

// The environment is read at the first use, which only a new process can show: this program runs itself.
TEST_F(Failpoint, ReadsTheEnvironment) {
  const auto run_with = [](const std::string& value) {
    return in_child([&] {
      ::setenv("TETRAD_FAILPOINTS", value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
      ::execl("/proc/self/exe", "test_core", "--gtest_filter=FailpointChild.*", "--gtest_brief=1", nullptr);
      return 99;
    });
  };
  EXPECT_EQ(run_with("file.close=enospc@2"), 0);
  EXPECT_EQ(run_with("file.close=kill"), -SIGKILL);
  EXPECT_EQ(run_with("file.close=eio@2"), 1);  // Not what the child expects.
}

class FailpointChild : public Failpoint {};

TEST_F(FailpointChild, SeesItsEnvironment) {
  const char* const variable = std::getenv("TETRAD_FAILPOINTS");  // NOLINT(concurrency-mt-unsafe)
  if (variable == nullptr) set_failpoints("file.close=enospc@2");
  EXPECT_EQ(failpoint("file.close"), 0);
  EXPECT_EQ(failpoint("file.close"), ENOSPC);
}

}  // namespace
}  // namespace tetrad
