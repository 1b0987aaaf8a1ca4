// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/thread_place.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace tetrad {
namespace {

/// Whoever changes where a thread may run reads first where it may: two at once would leave it restricted.
/// Threads are the process's, not a team's, and so are these; a few threads share one.
class Placement {
 public:
  explicit Placement(ThreadId thread) : held_(held_of(thread)) { is_mine_ = !held_.exchange(true); }
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;
  ~Placement() {
    if (is_mine_) held_.store(false);
  }

  bool is_mine() const { return is_mine_; }

  /// Not for ever: in a forked process, who held it may not exist.
  void wait() {
    constexpr int kAttempts = 1000;
    for (int i = 0; i < kAttempts && !is_mine_; ++i) {
      sched_yield();
      is_mine_ = !held_.exchange(true);
    }
  }

 private:
  static std::atomic<bool>& held_of(ThreadId thread) {
    static std::array<std::atomic<bool>, 64> all;
    return all[static_cast<std::size_t>(thread.thread) % all.size()];
  }

  std::atomic<bool>& held_;
  bool is_mine_ = false;
};

void set_cores(ThreadId thread, const cpu_set_t& cores) {
  sched_setaffinity(thread.thread, sizeof(cores), &cores);
}

}  // namespace

ThreadId ThreadId::of_this_thread() {
  ThreadId id;
  id.thread = gettid();
  pthread_getcpuclockid(pthread_self(), &id.clock);
  return id;
}

std::chrono::nanoseconds ThreadId::time() const {
  timespec time = {};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

int this_core() { return sched_getcpu(); }

void allow_cores(ThreadId thread, const cpu_set_t& cores) {
  Placement placement(thread);
  placement.wait();
  set_cores(thread, cores);
}

void move_thread(ThreadId thread, int core) {
  const Placement placement(thread);
  if (!placement.is_mine()) return;
  cpu_set_t before;
  if (sched_getaffinity(thread.thread, sizeof(before), &before) != 0) return;
  if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &before)) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  set_cores(thread, only);
  set_cores(thread, before);
}

cpu_set_t keep_away(ThreadId thread, int core) {
  cpu_set_t none;
  CPU_ZERO(&none);
  const Placement placement(thread);
  if (!placement.is_mine()) return none;
  cpu_set_t before;
  if (sched_getaffinity(thread.thread, sizeof(before), &before) != 0) return none;
  if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &before)) return none;
  cpu_set_t others = before;
  CPU_CLR(core, &others);
  if (CPU_COUNT(&others) == 0) return none;
  set_cores(thread, others);
  return before;
}

}  // namespace tetrad
