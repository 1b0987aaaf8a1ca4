// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients by finite differences, in double precision, of a reference written in double precision.

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace tetrad::testing {

/// d f / d x by central differences.
inline std::vector<double> numeric_gradient(const std::function<double(const std::vector<double>&)>& f,
                                            std::vector<double> x, double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = x[i];
    x[i] = value + step;
    const double above = f(x);
    x[i] = value - step;
    const double below = f(x);
    x[i] = value;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

/// max |actual - expected| / max |expected|: errors are judged against the tensor, not against its zeros.
template <typename Actual, typename Expected>
double relative_error(const Actual& actual, const Expected& expected) {
  double largest = 0;
  double error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    const double difference = std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
  }
  return largest == 0 ? error : error / largest;
}

}  // namespace tetrad::testing
