#include "tetrad/ops/loss.h"

#include "tetrad/ops/check_rows.h"

namespace tetrad {

void check(const CrossEntropy& op) {
  check_rows("cross_entropy", "hidden", op.hidden, op.hidden.rows, op.hidden.cols, op.hidden.dtype);
  check_rows("cross_entropy", "head", op.head, op.head.rows, op.hidden.cols, op.hidden.dtype);
  if (op.dhidden.data != nullptr)
    check_rows("cross_entropy", "dhidden", op.dhidden, op.hidden.rows, op.hidden.cols, op.hidden.dtype);
}

}  // namespace tetrad
