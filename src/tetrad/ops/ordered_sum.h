// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums of gradients that do not depend on who holds them: what ranks exchange is added in a fixed order.

#include <cstdint>
#include <span>

#include "tetrad/core/dtype.h"

namespace tetrad {

/// out[i] = Σ parts[k][i] over k, in f32 and in the order of TreeSum (numerics/tree_sum.h), on every backend
/// to the bit. BF16 parts are widened exactly. Each part has `size` values; `out` may be one of the parts, if
/// these are f32, and otherwise overlaps none.
struct OrderedSum {
  static constexpr int kLevels = 16;
  static constexpr std::int64_t kMostParts = (1 << kLevels) - 1;

  std::span<const void* const> parts;  //!< at least one; the list is the program's, the parts the backend's
  DType dtype = DType::f32;            //!< of the parts: f32 or BF16
  float* out = nullptr;
  std::int64_t size = 0;
};

/// Throws Error unless the operation makes sense.
void check(const OrderedSum& op);

/// Whether `parts` that are dealt to `ranks` in contiguous blocks of equal size can be added by each rank
/// first, and the ranks' sums then: both in the order above, the result is that of one rank with all of them.
/// So it is where a block is a node of the tree: a power of two of parts, or all of them.
bool ranks_keep_order(std::int64_t parts, std::int64_t ranks);

}  // namespace tetrad
