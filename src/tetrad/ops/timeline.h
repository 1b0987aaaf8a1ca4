// SPDX-License-Identifier: Apache-2.0
#pragma once
// Moments between operations, on the clock of what runs them: a device is asked when it was there, not waited
// for, so that operations follow each other as they do unwatched.

#include <chrono>
#include <vector>

namespace tetrad {

class Timeline {
 public:
  Timeline() = default;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  virtual ~Timeline() = default;

  /// Notes when the operations so far are done.
  virtual void mark() = 0;
  /// Seconds from the first mark to each of them, which are then forgotten. Waits for operations under way.
  virtual std::vector<double> take() = 0;
};

/// Where an operation is done when it returns.
class HostTimeline final : public Timeline {
 public:
  using Clock = std::chrono::steady_clock;

  void mark() override { marks_.push_back(Clock::now()); }
  std::vector<double> take() override {
    std::vector<double> seconds;
    for (const auto& mark : marks_)
      seconds.push_back(std::chrono::duration<double>(mark - marks_.front()).count());
    marks_.clear();
    return seconds;
  }

 private:
  std::vector<Clock::time_point> marks_;
};

}  // namespace tetrad
