// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/norm.h"

#include "tetrad/core/error.h"
#include "tetrad/ops/check_rows.h"

namespace tetrad {
namespace {

void check_groups(std::int64_t width, std::int64_t groups) {
  TETRAD_CHECK(groups > 0 && width % groups == 0, "gated_norm: {} channels cannot be cut into {} groups",
               width, groups);
}

void check_heads(std::int64_t width, std::int64_t heads) {
  TETRAD_CHECK(heads > 0 && width % heads == 0, "rms_norm: rows of {} values cannot be cut into {} heads",
               width, heads);
}

}  // namespace

void check(const RmsNormForward& op) {
  check_heads(op.x.cols, op.heads);
  check_rows("rms_norm", "x", op.x, op.x.rows, op.x.cols, op.x.dtype);
  check_rows("rms_norm", "y", op.y, op.x.rows, op.x.cols, op.x.dtype);
}

void check(const RmsNormBackward& op) {
  check_heads(op.x.cols, op.heads);
  check_rows("rms_norm", "x", op.x, op.x.rows, op.x.cols, op.x.dtype);
  check_rows("rms_norm", "dy", op.dy, op.x.rows, op.x.cols, op.x.dtype);
  check_rows("rms_norm", "dx", op.dx, op.x.rows, op.x.cols, op.x.dtype);
}

void check(const GatedNormForward& op) {
  check_groups(op.y.cols, op.groups);
  check_rows("gated_norm", "y", op.y, op.y.rows, op.y.cols, op.y.dtype);
  check_rows("gated_norm", "z", op.z, op.y.rows, op.y.cols, op.y.dtype);
  check_rows("gated_norm", "out", op.out, op.y.rows, op.y.cols, op.y.dtype);
}

void check(const GatedNormBackward& op) {
  check_groups(op.y.cols, op.groups);
  check_rows("gated_norm", "y", op.y, op.y.rows, op.y.cols, op.y.dtype);
  check_rows("gated_norm", "z", op.z, op.y.rows, op.y.cols, op.y.dtype);
  check_rows("gated_norm", "dout", op.dout, op.y.rows, op.y.cols, op.y.dtype);
  check_rows("gated_norm", "dy", op.dy, op.y.rows, op.y.cols, op.y.dtype);
  check_rows("gated_norm", "dz", op.dz, op.y.rows, op.y.cols, op.y.dtype);
}

}  // namespace tetrad
