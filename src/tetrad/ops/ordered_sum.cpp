// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/ordered_sum.h"

#include <bit>

#include "tetrad/core/error.h"

namespace tetrad {

void check(const OrderedSum& op) {
  const auto count = static_cast<std::int64_t>(op.parts.size());
  TETRAD_CHECK(count >= 1 && count <= OrderedSum::kMostParts, "ordered_sum: 1 to {} parts, not {}",
               OrderedSum::kMostParts, count);
  TETRAD_CHECK(op.dtype == DType::f32 || op.dtype == DType::bf16,
               "ordered_sum: parts must be F32 or BF16, not {}", name_of(op.dtype));
  TETRAD_CHECK(op.size >= 0, "ordered_sum: {} values", op.size);
}

bool ranks_keep_order(std::int64_t parts, std::int64_t ranks) {
  if (parts < 1 || ranks < 1 || parts % ranks != 0) return false;
  return ranks == 1 || std::has_single_bit(static_cast<std::uint64_t>(parts / ranks));
}

}  // namespace tetrad
