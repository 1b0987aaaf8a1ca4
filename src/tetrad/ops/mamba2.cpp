// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/mamba2.h"

#include "tetrad/core/error.h"
#include "tetrad/ops/check_rows.h"

namespace tetrad {
namespace {

void check(const Mamba2Shape& shape) {
  TETRAD_CHECK(shape.batch >= 1 && shape.sequence >= 1 && shape.chunk >= 1,
               "scan: batch {}, sequence {} and chunk {} must be positive", shape.batch, shape.sequence,
               shape.chunk);
  TETRAD_CHECK(shape.heads >= 1 && shape.groups >= 1 && shape.heads % shape.groups == 0,
               "scan: {} heads cannot share {} groups evenly", shape.heads, shape.groups);
  TETRAD_CHECK(shape.head_dim >= 1 && shape.state >= 1, "scan: head_dim {} and state {} must be positive",
               shape.head_dim, shape.state);
}

void check(const Mamba2Shape& shape, const ScanInputs& in) {
  check(shape);
  const std::int64_t rows = shape.batch * shape.sequence;
  check_rows("scan", "x", in.x, rows, shape.inner(), in.x.dtype);
  check_rows("scan", "b", in.b, rows, shape.groups * shape.state, in.x.dtype);
  check_rows("scan", "c", in.c, rows, shape.groups * shape.state, in.x.dtype);
  check_rows("scan", "dt", in.dt, rows, shape.heads, in.x.dtype);
  TETRAD_CHECK(in.dt_bias != nullptr && in.a_log != nullptr && in.d != nullptr,
               "scan: dt_bias, a_log and d must be given");
}

void check_conv(std::int64_t batch, std::int64_t sequence, std::int64_t kernel, const float* weight,
                const float* bias) {
  TETRAD_CHECK(batch >= 1 && sequence >= 1 && kernel >= 1,
               "causal_conv: batch {}, sequence {} and kernel {} must be positive", batch, sequence, kernel);
  TETRAD_CHECK(weight != nullptr && bias != nullptr, "causal_conv: weight and bias must be given");
}

}  // namespace

void check(const CausalConvForward& op) {
  check_conv(op.batch, op.sequence, op.kernel, op.weight, op.bias);
  check_rows("causal_conv", "x", op.x, op.batch * op.sequence, op.x.cols, op.x.dtype);
  check_rows("causal_conv", "out", op.out, op.x.rows, op.x.cols, op.x.dtype);
}

void check(const CausalConvBackward& op) {
  check_conv(op.batch, op.sequence, op.kernel, op.weight, op.bias);
  check_rows("causal_conv", "x", op.x, op.batch * op.sequence, op.x.cols, op.x.dtype);
  check_rows("causal_conv", "dout", op.dout, op.x.rows, op.x.cols, op.x.dtype);
  check_rows("causal_conv", "dx", op.dx, op.x.rows, op.x.cols, op.x.dtype);
  TETRAD_CHECK(op.dweight != nullptr && op.dbias != nullptr, "causal_conv: dweight and dbias must be given");
}

void check(const ScanForward& op) {
  check(op.shape, op.in);
  check_rows("scan", "y", op.y, op.in.x.rows, op.shape.inner(), op.in.x.dtype);
}

void check(const ScanBackward& op) {
  check(op.shape, op.in);
  const std::int64_t rows = op.in.x.rows;
  check_rows("scan", "dy", op.dy, rows, op.shape.inner(), op.in.x.dtype);
  check_rows("scan", "dx", op.dx, rows, op.shape.inner(), op.in.x.dtype);
  check_rows("scan", "db", op.db, rows, op.shape.groups * op.shape.state, op.in.x.dtype);
  check_rows("scan", "dc", op.dc, rows, op.shape.groups * op.shape.state, op.in.x.dtype);
  check_rows("scan", "ddt", op.ddt, rows, op.shape.heads, op.in.x.dtype);
  TETRAD_CHECK(op.chunk_states != nullptr, "scan: the backward pass needs the forward's chunk_states");
  TETRAD_CHECK(op.ddt_bias != nullptr && op.da_log != nullptr && op.dd != nullptr,
               "scan: ddt_bias, da_log and dd must be given");
}

void check(const Mamba2Step& op) {
  check(op.shape);
  TETRAD_CHECK(op.shape.batch == 1 && op.shape.sequence == 1 && op.kernel >= 1,
               "mamba2_step: takes one token of one sequence and a kernel of at least 1");
  check_rows("mamba2_step", "xbc", op.xbc, 1, op.shape.conv_channels(), op.xbc.dtype);
  check_rows("mamba2_step", "dt", op.dt, 1, op.shape.heads, op.xbc.dtype);
  check_rows("mamba2_step", "y", op.y, 1, op.shape.inner(), op.xbc.dtype);
  for (const float* parameter : {op.conv_weight, op.conv_bias, op.dt_bias, op.a_log, op.d})
    TETRAD_CHECK(parameter != nullptr, "mamba2_step: all parameters must be given");
  TETRAD_CHECK(op.ssm_state != nullptr && (op.conv_state != nullptr || op.kernel == 1),
               "mamba2_step: both states must be given");
}

}  // namespace tetrad
