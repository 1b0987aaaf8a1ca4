// SPDX-License-Identifier: Apache-2.0
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

inline double seconds_of(Backend& backend, const std::function<void()>& work, int times = 1) {
  backend.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) work();
  backend.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The least of as many tries as fit into a moment, after a first one that warms up (a library may load its
/// kernels then): other work on the machine makes a time look longer, never shorter. `measure` is one try and
/// returns its seconds.
inline double fastest_try(const std::function<double()>& measure) {
  constexpr double kMoment = 0.15;
  double least = measure();
  double spent = 0;
  do {
    const double seconds = measure();
    least = std::min(least, seconds);
    spent += seconds;
  } while (spent < kMoment);
  return least;
}

inline double fastest_seconds(Backend& backend, const std::function<void()>& work) {
  return fastest_try([&] { return seconds_of(backend, work); });
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

 private:
  /// Work that is repeated within one timing until it takes long enough.
  class Timed {
   public:
    Timed(Backend& backend, const std::function<void()>& work) : backend_(backend), work_(work) {
      constexpr double kLongEnough = 0.005;
      once();  // warms up
      repeats_ = std::max(1, static_cast<int>(std::ceil(kLongEnough / once())));
    }
    double seconds() const { return seconds_of(backend_, work_, repeats_) / repeats_; }

   private:
    double once() const { return seconds_of(backend_, work_); }

    Backend& backend_;
    const std::function<void()>& work_;
    int repeats_ = 1;
  };

  Backend& backend_;
  int repeats_;
};

}  // namespace tetrad::bench
