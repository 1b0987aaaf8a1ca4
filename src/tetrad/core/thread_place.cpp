// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/thread_place.h"

#include <pthread.h>
#include <unistd.h>

namespace tetrad {

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
  sched_setaffinity(thread.thread, sizeof(cores), &cores);
}

void move_thread(ThreadId thread, int core) {
  cpu_set_t before;
  if (sched_getaffinity(thread.thread, sizeof(before), &before) != 0) return;
  if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &before)) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  allow_cores(thread, only);
  allow_cores(thread, before);
}

cpu_set_t keep_away(ThreadId thread, int core) {
  cpu_set_t none;
  CPU_ZERO(&none);
  cpu_set_t before;
  if (sched_getaffinity(thread.thread, sizeof(before), &before) != 0) return none;
  if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &before)) return none;
  cpu_set_t others = before;
  CPU_CLR(core, &others);
  if (CPU_COUNT(&others) == 0) return none;
  allow_cores(thread, others);
  return before;
}

}  // namespace tetrad
