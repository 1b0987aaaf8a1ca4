// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/estimate.h"

#include <cmath>
#include <numeric>
#include <vector>

namespace tetrad {

Estimate estimate(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() < 2 ? 0 : std::sqrt(squares / (count - 1) / count),
          values.size() < kFewestValues};
}

Estimate estimate_difference(std::span<const double> a, std::span<const double> b) {
  std::vector<double> values;
  for (std::size_t i = 0; i < a.size(); ++i) values.push_back(a[i] - b[i]);
  return estimate(values);
}

}  // namespace tetrad
