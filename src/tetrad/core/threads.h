// SPDX-License-Identifier: Apache-2.0
#pragma once
// A team of threads that share the pieces of loops. Work is cut into pieces by its shape alone, never by the
// number of threads, so that results do not depend on how many there are, nor on who computes what.

#include <cstdint>
#include <memory>

namespace tetrad {

class Team;

/// Threads that belong to one context. They start with the first loop that needs them. One thread at a time
/// may call a team; teams do not know of each other.
class Threads {
 public:
  /// 0: default_thread_count().
  explicit Threads(int count = 0);
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads();

  /// With the caller; at least 1.
  int count() const { return count_; }

  /// Which thread of the team this is, in [0, count()): 0 for the caller.
  int worker() const;

  /// Calls body(i) for every i in [0, count), in any order, on all threads, with the default floating-point
  /// environment. The first exception is rethrown, and what has not begun by then is left out. A loop within
  /// a body runs on the thread that it is on.
  template <typename Body>
  void parallel_for(std::int64_t count, const Body& body) {
    run(
        count, [](const void* of, std::int64_t i) { (*static_cast<const Body*>(of))(i); }, &body);
  }

 private:
  using Call = void (*)(const void* body, std::int64_t i);
  void run(std::int64_t count, Call call, const void* body);
  void forget_team_of_another_process();

  int count_;
  std::unique_ptr<Team> team_;
};

/// TETRAD_THREADS, or else OMP_NUM_THREADS, which people know; else the cores that this process may use.
int default_thread_count();

}  // namespace tetrad
