// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/activation.h"

#include "tetrad/ops/check_rows.h"

namespace tetrad {
namespace {

std::int64_t input_width(Activation kind, std::int64_t width) {
  return kind == Activation::swiglu ? 2 * width : width;
}

}  // namespace

void check(const ActivationForward& op) {
  check_rows("activation", "y", op.y, op.y.rows, op.y.cols, op.y.dtype);
  check_rows("activation", "x", op.x, op.y.rows, input_width(op.kind, op.y.cols), op.y.dtype);
}

void check(const ActivationBackward& op) {
  const std::int64_t wide = input_width(op.kind, op.dy.cols);
  check_rows("activation", "dy", op.dy, op.dy.rows, op.dy.cols, op.dy.dtype);
  check_rows("activation", "x", op.x, op.dy.rows, wide, op.dy.dtype);
  check_rows("activation", "dx", op.dx, op.dy.rows, wide, op.dy.dtype);
}

}  // namespace tetrad
