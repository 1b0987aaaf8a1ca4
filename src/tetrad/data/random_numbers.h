// SPDX-License-Identifier: Apache-2.0
#pragma once
// A sequence of random numbers from Philox, for work that has a natural order.

#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include "tetrad/numerics/philox.h"

namespace tetrad {

class RandomNumbers {
 public:
  RandomNumbers(std::uint64_t seed, std::uint32_t stream) : seed_(seed), stream_(stream) {}

  std::uint64_t bits() {
    const PhiloxWords words = philox4x32_10(
        {static_cast<std::uint32_t>(counter_), static_cast<std::uint32_t>(counter_ >> 32), stream_, kDomain},
        {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
    ++counter_;
    return std::uint64_t{words[1]} << 32 | words[0];
  }

  /// From 0 to below 1.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

  /// From 0 to below `count`; uneven by at most count / 2^64.
  std::int64_t below(std::int64_t count) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::int64_t>(Wide{bits()} * static_cast<std::uint64_t>(count) >> 64);
  }

  /// Which of these probabilities, which sum to 1.
  std::size_t choose(std::span<const double> probabilities) {
    double rest = uniform();
    for (std::size_t i = 0; i + 1 < probabilities.size(); ++i) {
      rest -= probabilities[i];
      if (rest < 0) return i;
    }
    return probabilities.size() - 1;
  }

  /// Random probabilities: evenly spread over all there are, mixed with a tenth of equal ones so that none
  /// is too rare to be met.
  void fill_probabilities(std::span<double> probabilities) {
    for (double& p : probabilities) p = -std::log1p(-uniform());
    const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
    for (double& p : probabilities)
      p = sum > 0 ? 0.9 * p / sum + 0.1 / static_cast<double>(probabilities.size())
                  : 1.0 / static_cast<double>(probabilities.size());
  }

  /// Puts a random choice of `count` elements at the front, in random order.
  template <typename T>
  void shuffle_front(std::span<T> values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      std::swap(values[i], values[i + static_cast<std::size_t>(below(std::ssize(values.subspan(i))))]);
  }

 private:
  static constexpr std::uint32_t kDomain = 0x53594E54;  //!< keeps these draws apart from other uses of a seed

  std::uint64_t seed_;
  std::uint32_t stream_;
  std::uint64_t counter_ = 0;
};

}  // namespace tetrad
