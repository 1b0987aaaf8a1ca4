// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/attention.h"

#include "tetrad/core/error.h"
#include "tetrad/ops/check_rows.h"

namespace tetrad {
namespace {

constexpr std::int64_t kLargestHeadDim = 256;

void check(const AttentionShape& shape) {
  TETRAD_CHECK(shape.batch >= 1 && shape.sequence >= 1,
               "attention: batch {} and sequence {} must be positive", shape.batch, shape.sequence);
  TETRAD_CHECK(shape.heads >= 1 && shape.kv_heads >= 1 && shape.heads % shape.kv_heads == 0,
               "attention: {} heads cannot share {} key/value heads evenly", shape.heads, shape.kv_heads);
  TETRAD_CHECK(shape.head_dim >= 2 && shape.head_dim % 2 == 0 && shape.head_dim <= kLargestHeadDim,
               "attention: head_dim {} must be even and at most {}", shape.head_dim, kLargestHeadDim);
}

template <typename View>
void check_queries(const AttentionShape& shape, const char* name, const View& view, DType dtype) {
  check_rows("attention", name, view, shape.batch * shape.sequence, shape.heads * shape.head_dim, dtype);
}

template <typename View>
void check_keys(const AttentionShape& shape, std::int64_t cached, const char* name, const View& view,
                DType dtype) {
  check_rows("attention", name, view, shape.batch * (cached + shape.sequence),
             shape.kv_heads * shape.head_dim, dtype);
}

}  // namespace

void check(const AttentionForward& op) {
  check(op.shape);
  check_queries(op.shape, "q", op.q, op.q.dtype);
  check_keys(op.shape, 0, "k", op.k, op.q.dtype);
  check_keys(op.shape, 0, "v", op.v, op.q.dtype);
  check_queries(op.shape, "out", op.out, op.q.dtype);
}

void check(const AttentionBackward& op) {
  check(op.shape);
  check_queries(op.shape, "q", op.q, op.q.dtype);
  check_keys(op.shape, 0, "k", op.k, op.q.dtype);
  check_keys(op.shape, 0, "v", op.v, op.q.dtype);
  check_queries(op.shape, "out", op.out, op.q.dtype);
  check_queries(op.shape, "dout", op.dout, op.q.dtype);
  check_queries(op.shape, "dq", op.dq, op.q.dtype);
  check_keys(op.shape, 0, "dk", op.dk, op.q.dtype);
  check_keys(op.shape, 0, "dv", op.dv, op.q.dtype);
  TETRAD_CHECK(op.log_sum_exp != nullptr, "attention: the backward pass needs the forward's log_sum_exp");
}

void check(const AttentionDecode& op) {
  check(op.shape);
  TETRAD_CHECK(op.shape.batch == 1, "attention: decoding takes one sequence, not a batch of {}",
               op.shape.batch);
  TETRAD_CHECK(op.cached >= 0, "attention: {} cached tokens", op.cached);
  check_queries(op.shape, "q", op.q, op.q.dtype);
  check_keys(op.shape, op.cached, "k", op.k, op.q.dtype);
  check_keys(op.shape, op.cached, "v", op.v, op.q.dtype);
  check_queries(op.shape, "out", op.out, op.q.dtype);
}

}  // namespace tetrad
