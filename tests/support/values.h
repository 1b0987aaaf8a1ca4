// SPDX-License-Identifier: Apache-2.0
#pragma once
// Vectors of numbers in double precision, as oracles take and give them.

#include <cstddef>
#include <vector>

namespace tetrad::testing {

using Values = std::vector<double>;

inline std::vector<float> to_f32(const Values& values) { return {values.begin(), values.end()}; }
inline Values to_f64(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// sum of a[i] * b[i]: outputs weighted by what would come back as their gradient.
inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace tetrad::testing
