// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums in an order of their own. A compiler would choose it by the width of the vectors that it compiles for,
// and results would depend on the instruction set.

#include <cstdint>

#include "tetrad/backend/cpu/simd.h"

namespace tetrad::cpu {

/// A sum over [0, count), where step(i, sum) gives `sum` with element i added: one partial sum for each i mod
/// 16, then those eight, four, two apart and the last two are added.
template <typename T, typename Step>
[[gnu::always_inline]] inline T sum_in_lanes(std::int64_t count, const Step& step) {
  constexpr int kSums = 16;
  T sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
#pragma omp simd
    for (int lane = 0; lane < kSums; ++lane) sums[lane] = step(i + lane, sums[lane]);
  }
  for (int lane = 0; i < count; ++i, ++lane) sums[lane] = step(i, sums[lane]);
  for (int half = kSums / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

inline float dot(const float* a, const float* b, std::int64_t count) {
  return sum_in_lanes<float>(count, [&](std::int64_t i, float sum) { return fused(a[i], b[i], sum); });
}

}  // namespace tetrad::cpu
