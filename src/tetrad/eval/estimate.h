// SPDX-License-Identifier: Apache-2.0
#pragma once
// Means of what was measured a few times, and how sure they are.

#include <cstddef>
#include <span>

namespace tetrad {

/// The fewest values (of microbatches, of sequences) whose standard error says anything: that of fewer is
/// mostly chance itself.
inline constexpr std::size_t kFewestValues = 4;

struct Estimate {
  double mean = 0;
  double error = 0;     //!< standard error
  bool is_few = false;  //!< fewer than kFewestValues: everything is noise

  /// Two standard errors above 0.
  bool is_above_noise() const { return !is_few && mean > 2 * error; }
  bool is_below_noise() const { return !is_few && -mean > 2 * error; }
  bool is_noise() const { return !is_above_noise() && !is_below_noise(); }
};

Estimate estimate(std::span<const double> values);
/// The mean of a - b, pair by pair.
Estimate estimate_difference(std::span<const double> a, std::span<const double> b);

}  // namespace tetrad
