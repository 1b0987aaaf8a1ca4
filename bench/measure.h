#pragma once
// Timing that can be trusted: the figure and its ceiling are measured in turns, so that both see the same
// machine, and each time is long enough for the clock and for the way to a device and back.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tetrad/ops/backend.h"

namespace tetrad::bench {

/// One figure beside what bounds it.
struct Figure {
  std::string name;
  std::string unit;
  double value = 0;
  double ceiling = 0;
  std::string ceiling_name;

  double ratio() const { return value / ceiling; }
};

/// Called with each figure as soon as it is known: benchmarks take a while.
using Report = std::function<void(const Figure&)>;

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Pair {
  double work;
  double ceiling;
};

class Stopwatch {
 public:
  Stopwatch(Backend& backend, int repeats) : backend_(backend), repeats_(repeats) {}

  /// Median seconds of both, measured alternately after a warm-up.
  Pair measure(const std::function<void()>& work, const std::function<void()>& ceiling) const {
    const Timed first(backend_, work);
    const Timed second(backend_, ceiling);
    std::vector<double> work_times;
    std::vector<double> ceiling_times;
    for (int i = 0; i < repeats_; ++i) {
      work_times.push_back(first.seconds());
      ceiling_times.push_back(second.seconds());
    }
    return {median(work_times), median(ceiling_times)};
  }

  /// Least seconds after a warm-up: other work on the machine makes a time look longer, never shorter.
  double fastest(const std::function<void()>& work) const {
    const Timed timed(backend_, work);
    double least = timed.seconds();
    for (int i = 1; i < repeats_; ++i) least = std::min(least, timed.seconds());
    return least;
  }

 private:
  /// Work that is repeated within one timing until it takes long enough.
  class Timed {
   public:
    Timed(Backend& backend, const std::function<void()>& work) : backend_(backend), work_(work) {
      constexpr double kLongEnough = 0.005;
      once();  // warms up
      repeats_ = std::max(1, static_cast<int>(std::ceil(kLongEnough / once())));
    }
    double seconds() const { return run(repeats_) / repeats_; }

   private:
    double once() const { return run(1); }
    double run(int times) const {
      backend_.synchronize();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < times; ++i) work_();
      backend_.synchronize();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }

    Backend& backend_;
    const std::function<void()>& work_;
    int repeats_ = 1;
  };

  Backend& backend_;
  int repeats_;
};

}  // namespace tetrad::bench
