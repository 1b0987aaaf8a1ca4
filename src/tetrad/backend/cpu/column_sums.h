// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients of parameters that every token shares: sums over the rows of a matrix, in a fixed order.

#include <vector>

#include "tetrad/backend/cpu/element.h"

namespace tetrad::cpu {

/// body(row, sums) adds row `row`'s contribution to sums[width]. Pieces of rows have their own sums, which
/// are added to `out` in the order of the rows, whoever computed them.
template <typename Body>
void add_column_sums(Threads& threads, std::int64_t row_count, std::int64_t width, float* out,
                     const Body& body) {
  constexpr std::int64_t kRows = 64;
  const std::int64_t pieces = ceil_div(row_count, kRows);
  std::vector<float> partial(static_cast<std::size_t>(pieces * width), 0.0f);
  threads.parallel_for(pieces, [&](std::int64_t piece) {
    float* sums = partial.data() + piece * width;
    for (std::int64_t row = piece * kRows; row < std::min(row_count, (piece + 1) * kRows); ++row)
      body(row, sums);
  });
  for (std::int64_t piece = 0; piece < pieces; ++piece)
    for (std::int64_t i = 0; i < width; ++i) out[i] += partial[static_cast<std::size_t>(piece * width + i)];
}

}  // namespace tetrad::cpu
