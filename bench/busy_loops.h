// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>
#include <vector>

namespace tetrad::bench {

/// While it lives, so many threads compute without a pause, as other people's programs do.
class BusyLoops {
 public:
  explicit BusyLoops(int count) {
    for (int i = 0; i < count; ++i)
      loops_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
  }
  BusyLoops(const BusyLoops&) = delete;
  BusyLoops& operator=(const BusyLoops&) = delete;
  ~BusyLoops() {
    stop_.store(true);
    for (std::thread& loop : loops_) loop.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> loops_;
};

}  // namespace tetrad::bench
