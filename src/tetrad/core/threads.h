// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads of the CPU. Work is cut into pieces by its shape alone, never by the number of threads, so that
// results do not depend on how many there are.

#include <cstdint>
#include <exception>
#include <mutex>

namespace tetrad {

/// Number of threads that parallel_for uses; at least 1.
int thread_count();

/// 0 restores the default: OMP_NUM_THREADS if set, else one thread per core.
void set_thread_count(int count);

/// Calls body(i) for every i in [0, count), in any order, on all threads. The first exception is rethrown.
template <typename Body>
void parallel_for(std::int64_t count, const Body& body) {
  std::exception_ptr error;
  std::mutex error_mutex;
#pragma omp parallel for schedule(dynamic, 1) num_threads(thread_count()) if (count > 1)
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace tetrad
