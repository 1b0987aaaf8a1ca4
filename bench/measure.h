#pragma once
// Timing that can be trusted: the figure and its ceiling are measured in turns, so that both see the same
// machine.

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

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

inline double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Pair {
  double work;
  double ceiling;
};

/// Median seconds of both, measured alternately after a warm-up.
inline Pair measure(int repeats, const std::function<void()>& work, const std::function<void()>& ceiling) {
  std::vector<double> work_times;
  std::vector<double> ceiling_times;
  work();
  ceiling();
  for (int i = 0; i < repeats; ++i) {
    work_times.push_back(seconds_of(work));
    ceiling_times.push_back(seconds_of(ceiling));
  }
  return {median(work_times), median(ceiling_times)};
}

}  // namespace tetrad::bench
