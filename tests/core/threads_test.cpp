// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cfenv>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/core/float_environment.h"

namespace tetrad {
namespace {

/// How often each index was called.
std::vector<int> calls_of(Threads& threads, std::int64_t count) {
  std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
  threads.parallel_for(count, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
  return {calls.begin(), calls.end()};
}

TEST(Threads, CallsEveryIndexOnce) {
  for (const int count : {1, 2, 3, 8}) {
    Threads threads(count);
    EXPECT_EQ(threads.count(), count);
    for (const std::int64_t pieces : {0, 1, 2, 3, 7, 1000})
      EXPECT_EQ(calls_of(threads, pieces), std::vector<int>(static_cast<std::size_t>(pieces), 1));
  }
}

TEST(Threads, ShortLoopsInARowLoseNothing) {
  Threads threads(4);
  for (std::int64_t loop = 0; loop < 20'000; ++loop) {
    const std::int64_t pieces = loop % 9;
    std::atomic<std::int64_t> sum = 0;
    threads.parallel_for(pieces, [&](std::int64_t i) { sum += i + 1; });
    ASSERT_EQ(sum, pieces * (pieces + 1) / 2) << "loop " << loop;
  }
}

TEST(Threads, WorkersThatSleptWakeUp) {
  Threads threads(3);
  for (int loop = 0; loop < 20; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(calls_of(threads, 50), std::vector<int>(50, 1));
  }
}

TEST(Threads, WhatTheBodiesWroteIsThereAfterwards) {
  Threads threads(4);
  std::vector<std::int64_t> squares(5000);
  threads.parallel_for(5000, [&](std::int64_t i) { squares[static_cast<std::size_t>(i)] = i * i; });
  for (std::int64_t i = 0; i < 5000; ++i) ASSERT_EQ(squares[static_cast<std::size_t>(i)], i * i);
}

TEST(Threads, SeveralWorkAtOnce) {
  Threads threads(2);
  std::atomic<int> arrived = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  threads.parallel_for(2, [&](std::int64_t) {
    ++arrived;
    while (arrived < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
  EXPECT_LT(std::chrono::steady_clock::now(), deadline) << "the second piece waited for the first";
}

TEST(Threads, TheFirstExceptionIsRethrown) {
  for (const int count : {1, 3}) {
    Threads threads(count);
    for (int loop = 0; loop < 50; ++loop) {
      try {
        threads.parallel_for(100, [&](std::int64_t i) {
          if (i == 7) throw std::runtime_error("seven");
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "seven");
      }
      EXPECT_EQ(calls_of(threads, 10), std::vector<int>(10, 1)) << "after an exception";
    }
  }
}

TEST(Threads, ALoopWithinABodyRunsThere) {
  Threads threads(4);
  std::atomic<std::int64_t> sum = 0;
  threads.parallel_for(20, [&](std::int64_t) {
    const std::thread::id outer = std::this_thread::get_id();
    const int worker = threads.worker();
    threads.parallel_for(10, [&](std::int64_t i) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      EXPECT_EQ(threads.worker(), worker);
      sum += i;
    });
  });
  EXPECT_EQ(sum, 20 * 45);
}

TEST(Threads, WorkersHaveDifferentNumbers) {
  Threads threads(3);
  EXPECT_EQ(threads.worker(), 0);
  std::vector<std::atomic<int>> inside(3);
  threads.parallel_for(3000, [&](std::int64_t) {
    const int worker = threads.worker();
    ASSERT_TRUE(worker >= 0 && worker < 3);
    EXPECT_EQ(inside[static_cast<std::size_t>(worker)]++, 0) << "two threads have this number";
    --inside[static_cast<std::size_t>(worker)];
  });
  EXPECT_EQ(threads.worker(), 0);
}

TEST(Threads, TwoTeamsWorkSideBySide) {
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([caller] {
      Threads threads(caller + 1);
      for (int loop = 0; loop < 300; ++loop)
        ASSERT_EQ(calls_of(threads, 40), std::vector<int>(40, 1)) << "caller " << caller;
    });
  for (std::thread& caller : callers) caller.join();
}

/// The cores that this thread may use.
cpu_set_t allowed_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  EXPECT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  return cores;
}

TEST(Threads, MayUseTheSameCoresAfterTheyWerePutOntoOthers) {
  const cpu_set_t before = allowed_cores();
  const int cores = CPU_COUNT(&before);
  std::atomic<bool> stop = false;
  std::vector<std::thread> busy;  // so that threads of the team lose their cores
  for (int i = 0; i < cores; ++i)
    busy.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  Threads threads(cores + 1);
  std::vector<std::atomic<bool>> restored(static_cast<std::size_t>(threads.count()));
  const auto all_restored = [&] {
    return std::all_of(restored.begin(), restored.end(), [](const auto& one) { return one.load(); });
  };
  for (int loop = 0; loop < 100; ++loop) {
    threads.parallel_for(threads.count(), [](std::int64_t) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
      while (std::chrono::steady_clock::now() < end) {
      }
    });
    if (loop % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // so that workers sleep
  }
  stop = true;
  for (std::thread& loop : busy) loop.join();
  for (int loop = 0; loop < 1000 && !all_restored(); ++loop)
    threads.parallel_for(threads.count(), [&](std::int64_t) {
      const cpu_set_t now = allowed_cores();
      restored[static_cast<std::size_t>(threads.worker())] = CPU_EQUAL(&now, &before);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // one piece for each
    });
  EXPECT_TRUE(all_restored());
  // The others may be about to move this thread, for which it has a single core for a moment.
  cpu_set_t after = allowed_cores();
  for (int i = 0; i < 1000 && !CPU_EQUAL(&after, &before); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    after = allowed_cores();
  }
  EXPECT_TRUE(CPU_EQUAL(&after, &before));
}

TEST(Threads, ATeamThatIsUsedTwiceAtOnceIsRefused) {
  Threads threads(2);
  std::atomic<bool> running = false;
  std::atomic<bool> refused = false;
  std::thread other([&] {
    while (!running) std::this_thread::yield();
    EXPECT_THROW(threads.parallel_for(10, [](std::int64_t) {}), Error);
    refused = true;
  });
  threads.parallel_for(2, [&](std::int64_t) {
    running = true;
    while (!refused) std::this_thread::yield();
  });
  other.join();
}

TEST(Threads, WorksInAForkedProcess) {
  Threads threads(3);
  ASSERT_EQ(calls_of(threads, 100), std::vector<int>(100, 1));  // the threads are there
  const pid_t child = fork();
  if (child == 0) {
    const bool good = calls_of(threads, 100) == std::vector<int>(100, 1);
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(calls_of(threads, 100), std::vector<int>(100, 1));
}

/// Rounds down and, where the processor can, flushes subnormal values to zero.
class OddEnvironment {
 public:
  OddEnvironment() {
    std::fegetenv(&saved_);
    std::fesetround(FE_DOWNWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040u);
#elif defined(__aarch64__)
    std::uint64_t control = 0;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    asm volatile("msr fpcr, %0" : : "r"(control | (std::uint64_t{1} << 24)));
#endif
  }
  OddEnvironment(const OddEnvironment&) = delete;
  OddEnvironment& operator=(const OddEnvironment&) = delete;
  ~OddEnvironment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
};

/// Two thirds, rounded, and half of the smallest normal value: their bits, since a comparison of values would
/// flush them too.
struct Samples {
  std::uint32_t two_thirds, half_of_smallest;
  friend bool operator==(const Samples&, const Samples&) = default;
};

Samples compute() {
  const volatile float two = 2;
  const volatile float three = 3;
  const volatile float smallest = 0x1p-126f;
  return {std::bit_cast<std::uint32_t>(two / three), std::bit_cast<std::uint32_t>(smallest * 0.5f)};
}

TEST(Threads, BodiesComputeInTheDefaultEnvironment) {
  const Samples expected = compute();
  for (const int count : {1, 3}) {
    const OddEnvironment odd;
    const Samples before = compute();
    EXPECT_NE(before, expected);
    Threads threads(count);  // started by a thread with an odd environment, too
    std::vector<Samples> samples(200);
    threads.parallel_for(200, [&](std::int64_t i) { samples[static_cast<std::size_t>(i)] = compute(); });
    for (const Samples& sample : samples) ASSERT_EQ(sample, expected);
    EXPECT_EQ(compute(), before) << "the caller's environment was not restored";
  }
}

// Nobody else reads the environment while these tests change it.
// NOLINTBEGIN(concurrency-mt-unsafe)
class ThreadsDefault : public ::testing::Test {
 protected:
  ~ThreadsDefault() override {
    unsetenv("TETRAD_THREADS");
    unsetenv("OMP_NUM_THREADS");
  }
};

TEST_F(ThreadsDefault, IsWhatTheEnvironmentSays) {
  setenv("OMP_NUM_THREADS", "5,2", 1);
  EXPECT_EQ(Threads().count(), 5);
  setenv("TETRAD_THREADS", "3", 1);
  EXPECT_EQ(Threads().count(), 3);
  EXPECT_EQ(Threads(2).count(), 2) << "what was asked for comes first";
  for (const char* nonsense : {"", "0", "-2", "many", "3x"}) {
    setenv("TETRAD_THREADS", nonsense, 1);
    EXPECT_EQ(Threads().count(), 5) << nonsense;
  }
}

TEST_F(ThreadsDefault, IsAtMostTheCoresThatTheProcessMayUse) {
  unsetenv("TETRAD_THREADS");
  unsetenv("OMP_NUM_THREADS");
  // NOLINTEND(concurrency-mt-unsafe)
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_LE(default_thread_count(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(default_thread_count(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace tetrad
