// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where threads run, and whether they do: what a team needs to know on a machine that it shares with others.

#include <sched.h>
#include <sys/types.h>

#include <chrono>
#include <ctime>

namespace tetrad {

/// A thread of this process, as the kernel knows it.
struct ThreadId {
  pid_t thread = 0;
  clockid_t clock = 0;  //!< its time on a core

  static ThreadId of_this_thread();

  /// How long it has run.
  std::chrono::nanoseconds time() const;
};

/// The core that this thread is on.
int this_core();

/// Puts a thread that waits for another core onto `core`, where it runs as soon as that is free. It may leave
/// again: the cores that it is allowed to use are the same afterwards. One that may not use `core` stays, and
/// so does one that somebody else is moving.
void move_thread(ThreadId thread, int core);

/// Keeps a thread that sleeps away from `core` when it wakes up, if it may use others. Returns the cores that
/// it was allowed to use, for allow_cores(); none: nothing was changed.
cpu_set_t keep_away(ThreadId thread, int core);

void allow_cores(ThreadId thread, const cpu_set_t& cores);

}  // namespace tetrad
