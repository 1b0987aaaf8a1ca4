// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/loss.h"

#include "tetrad/core/error.h"
#include "tetrad/ops/check_rows.h"

namespace tetrad {

void check(const CrossEntropy& op) {
  check_rows("cross_entropy", "hidden", op.hidden, op.hidden.rows, op.hidden.cols, op.hidden.dtype);
  check_rows("cross_entropy", "head", op.head, op.head.rows, op.hidden.cols, op.hidden.dtype);
  if (op.dhidden.data != nullptr)
    check_rows("cross_entropy", "dhidden", op.dhidden, op.hidden.rows, op.hidden.cols, op.hidden.dtype);
}

void check_targets(std::span<const std::int32_t> targets, std::int64_t vocab) {
  for (std::size_t i = 0; i < targets.size(); ++i)
    TETRAD_CHECK(targets[i] == CrossEntropy::kIgnore || (targets[i] >= 0 && targets[i] < vocab),
                 "cross_entropy: target {} has id {}, but the vocabulary ends at {}", i, targets[i],
                 vocab - 1);
}

}  // namespace tetrad
