// SPDX-License-Identifier: Apache-2.0
// Attention, backward: scores are computed again, tile by tile, from log_sum_exp.
//
// One task is one key/value head of one sequence, so that the gradients of its keys and values are summed
// over the query heads of the group, and over the queries, in a fixed order.

#include <algorithm>

#include "tetrad/backend/cpu/attention.h"
#include "tetrad/backend/cpu/math.h"
#include "tetrad/backend/cpu/product.h"
#include "tetrad/backend/cpu/rows.h"
#include "tetrad/backend/cpu/sums.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kTile = 64;

/// One thread's f32 matrices of a task. Rows have `width` elements: head_dim, padded.
struct Matrices {
  std::int64_t width;
  float *q, *dout, *dq;          // [sequence, width], of one query head; q is times the scale
  float *dk, *dv;                // [sequence, width]
  float *k, *v;                  // [kTile, width]
  float *k_columns, *v_columns;  // [width, kTile]
  float *p, *ds;                 // [kTile, kTile]
  float* delta;                  // [sequence]

  static std::int64_t size(std::int64_t rows, std::int64_t width) {
    return (5 * rows + 4 * kTile) * width + 2 * kTile * kTile + rows;
  }

  /// `rows` is the sequence, padded.
  Matrices(Scratch scratch, std::int64_t rows, std::int64_t padded_head_dim)
      : width(padded_head_dim),
        q(scratch.take(rows * width)),
        dout(scratch.take(rows * width)),
        dq(scratch.take(rows * width)),
        dk(scratch.take(rows * width)),
        dv(scratch.take(rows * width)),
        k(scratch.take(kTile * width)),
        v(scratch.take(kTile * width)),
        k_columns(scratch.take(kTile * width)),
        v_columns(scratch.take(kTile * width)),
        p(scratch.take(kTile * kTile)),
        ds(scratch.take(kTile * kTile)),
        delta(scratch.take(rows)) {}
};

/// Queries [query, query + rows) against keys [key, key + keys).
struct Square {
  std::int64_t query, rows;
  std::int64_t key, keys;
  const std::int32_t* document_starts;  //!< of the queries, or null

  bool is_lower() const { return query == key; }
  /// Keys of earlier documents than the query's.
  std::int64_t hidden(std::int64_t row) const {
    return document_starts == nullptr ? 0 : std::clamp<std::int64_t>(document_starts[row] - key, 0, keys);
  }
};

/// p: scores to probabilities. ds: gradients of probabilities to gradients of scores.
void differentiate_softmax(const Square& square, const float* log_sum_exp, const Matrices& m) {
  for (std::int64_t r = 0; r < square.rows; ++r) {
    float* p = m.p + r * kTile;
    float* ds = m.ds + r * kTile;
    const float row_log_sum_exp = log_sum_exp[square.query + r];
    const float delta = m.delta[square.query + r];
    const std::int64_t columns = square.is_lower() ? padded(r + 1) : padded(square.keys);
    for (std::int64_t c = 0; c < columns; ++c) {
      p[c] = fast_exp(p[c] - row_log_sum_exp);
      ds[c] = p[c] * (ds[c] - delta);
    }
    std::fill_n(p, square.hidden(r), 0.0f);
    std::fill_n(ds, square.hidden(r), 0.0f);
    if (!square.is_lower()) continue;
    std::fill(p + r + 1, p + columns, 0.0f);
    std::fill(ds + r + 1, ds + columns, 0.0f);
  }
}

void differentiate(const Square& square, std::int64_t head_dim, const float* log_sum_exp, const Matrices& m) {
  const std::int64_t width = m.width;
  const float* q = m.q + square.query * width;
  const float* dout = m.dout + square.query * width;
  const Result dq{m.dq + square.query * width, width};
  const Result dk{m.dk + square.key * width, width};
  const Result dv{m.dv + square.key * width, width};
  if (square.is_lower()) {
    multiply_to_lower(square.rows, head_dim, straight(q, width), {m.k_columns, kTile}, {m.p, kTile});
    multiply_to_lower(square.rows, head_dim, straight(dout, width), {m.v_columns, kTile}, {m.ds, kTile});
    differentiate_softmax(square, log_sum_exp, m);
    multiply_add_lower_transposed(square.rows, width, m.p, kTile, {dout, width}, dv);
    multiply_add_lower_transposed(square.rows, width, m.ds, kTile, {q, width}, dk);
    multiply_add_lower(square.rows, width, m.ds, kTile, {m.k, width}, dq);
    return;
  }
  const ProductShape scores{square.rows, padded(square.keys), head_dim};
  multiply(scores, straight(q, width), {m.k_columns, kTile}, {m.p, kTile});
  multiply(scores, straight(dout, width), {m.v_columns, kTile}, {m.ds, kTile});
  differentiate_softmax(square, log_sum_exp, m);
  multiply_add({square.keys, width, square.rows}, transposed(m.p, kTile), {dout, width}, dv);
  multiply_add({square.keys, width, square.rows}, transposed(m.ds, kTile), {q, width}, dk);
  multiply_add({square.rows, width, square.keys}, straight(m.ds, kTile), {m.k, width}, dq);
}

/// delta[t] = dout[t] . out[t]; dq serves as room for out.
void sum_products(const AttentionBackward& op, const Part& part, const Matrices& m) {
  load_rows(op.out, part, 1, m.dq, m.width);
  for (std::int64_t t = 0; t < part.rows; ++t) {
    m.delta[t] = dot(m.dq + t * m.width, m.dout + t * m.width, m.width);
  }
}

void differentiate_head(const AttentionBackward& op, std::int64_t batch, std::int64_t head,
                        const Matrices& m) {
  const AttentionShape& shape = op.shape;
  const std::int64_t sequence = shape.sequence;
  const Part part{batch * sequence, sequence, head * shape.head_dim, shape.head_dim};
  const std::int64_t kv_col = head / (shape.heads / shape.kv_heads) * shape.head_dim;
  load_rows(op.q, part, shape.scale, m.q, m.width);
  load_rows(op.dout, part, 1, m.dout, m.width);
  sum_products(op, part, m);
  std::fill_n(m.dq, sequence * m.width, 0.0f);

  const float* log_sum_exp = op.log_sum_exp + (batch * shape.heads + head) * sequence;
  for (std::int64_t key = 0; key < sequence; key += kTile) {
    const std::int64_t keys = std::min(kTile, sequence - key);
    const Part kv{batch * sequence + key, keys, kv_col, shape.head_dim};
    load_rows(op.k, kv, 1, m.k, m.width);
    load_rows(op.v, kv, 1, m.v, m.width);
    transpose_tile(m.k, padded(keys), m.width, m.width, m.k_columns, kTile);
    transpose_tile(m.v, padded(keys), m.width, m.width, m.v_columns, kTile);
    for (std::int64_t query = key; query < sequence; query += kTile) {
      const Square square{query, std::min(kTile, sequence - query), key, keys,
                          op.document_starts == nullptr ? nullptr : op.document_starts + part.row + query};
      if (square.hidden(0) == keys) break;  // so do all later queries come from later documents
      differentiate(square, shape.head_dim, log_sum_exp, m);
    }
  }

  // q carried the scale into the gradient of the keys; this is the queries' own.
  for (std::int64_t i = 0; i < sequence * m.width; ++i) m.dq[i] *= shape.scale;
  store_rows(m.dq, m.width, op.dq, part);
}

}  // namespace

void attention(Threads& threads, const AttentionBackward& op) {
  check(op);
  const AttentionShape& shape = op.shape;
  const std::int64_t group = shape.heads / shape.kv_heads;
  threads.parallel_for(shape.batch * shape.kv_heads, [&](std::int64_t task) {
    thread_local Buffer buffer;
    const std::int64_t rows = padded(shape.sequence);
    const std::int64_t width = padded(shape.head_dim);
    const Matrices m(Scratch(buffer, Matrices::size(rows, width)), rows, width);
    const std::int64_t batch = task / shape.kv_heads;
    const std::int64_t kv_head = task % shape.kv_heads;
    std::fill_n(m.dk, shape.sequence * m.width, 0.0f);
    std::fill_n(m.dv, shape.sequence * m.width, 0.0f);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      differentiate_head(op, batch, head, m);
    const Part part{batch * shape.sequence, shape.sequence, kv_head * shape.head_dim, shape.head_dim};
    store_rows(m.dk, m.width, op.dk, part);
    store_rows(m.dv, m.width, op.dv, part);
  });
}

}  // namespace tetrad::cpu
