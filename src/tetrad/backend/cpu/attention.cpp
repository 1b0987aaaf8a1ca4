// SPDX-License-Identifier: Apache-2.0
// Attention, forward and decode: online softmax over tiles of keys.
//
// One task is one head and a segment of its queries. It walks over the tiles of keys, so that a tile is
// converted once for the whole segment, and what it keeps does not grow with the sequence. A query's result
// does not depend on the cut into segments.

#include "tetrad/backend/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tetrad/backend/cpu/math.h"
#include "tetrad/backend/cpu/product.h"
#include "tetrad/backend/cpu/rows.h"
#include "tetrad/backend/cpu/sums.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kTile = 64;  //!< keys, and queries, of a square of scores
constexpr std::int64_t kSegment = 4 * kTile;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// What forward and decode have in common.
struct Problem {
  AttentionShape shape;
  std::int64_t cached;  //!< keys before the first query
  MatrixView q, k, v;
  MutableMatrixView out;
  float* log_sum_exp;                   //!< may be null
  const std::int32_t* document_starts;  //!< null, or [batch, sequence] (documents.h)

  std::int64_t keys() const { return cached + shape.sequence; }
};

/// One thread's f32 tiles of a task. Rows have `width` elements: head_dim, padded.
struct Tiles {
  std::int64_t width;
  float *q, *out;            // [kSegment, width]
  float *key_rows, *v;       // [kTile, width]
  float* keys;               // [width, kTile]
  float* scores;             // [kTile, kTile]
  float *maximum, *sum;      // [kSegment]
  float *previous, *factor;  // [kTile]

  Tiles(Buffer& buffer, std::int64_t head_dim) : width(padded(head_dim)) {
    Scratch scratch(buffer, (2 * kSegment + 3 * kTile) * width + kTile * kTile + 2 * kSegment + 2 * kTile);
    q = scratch.take(kSegment * width);
    out = scratch.take(kSegment * width);
    key_rows = scratch.take(kTile * width);
    v = scratch.take(kTile * width);
    keys = scratch.take(kTile * width);
    scores = scratch.take(kTile * kTile);
    maximum = scratch.take(kSegment);
    sum = scratch.take(kSegment);
    previous = scratch.take(kTile);
    factor = scratch.take(kTile);
  }
};

/// A square of scores: queries [first, first + rows) of the segment against one tile of keys.
struct Square {
  std::int64_t first, rows;
  std::int64_t keys;     //!< in the tile
  std::int64_t visible;  //!< keys up to the first query's own: may be none (<= 0) or more than there are;
                         //!< each later query sees one more
  std::int64_t key;      //!< position of the tile's first
  const std::int32_t* document_starts;  //!< of the queries, or null

  /// Query r sees keys 0 … r: only the lower triangle is worth computing.
  bool is_lower() const { return visible == 1 && rows == keys; }
  std::int64_t columns(std::int64_t row) const { return is_lower() ? padded(row + 1) : padded(keys); }
  /// Keys of earlier documents than the query's.
  std::int64_t hidden(std::int64_t row) const {
    return document_starts == nullptr ? 0 : std::clamp<std::int64_t>(document_starts[row] - key, 0, keys);
  }
};

/// Scores of keys that a query does not see become minus infinity.
void mask(const Square& square, float* scores) {
  for (std::int64_t r = 0; r < square.rows; ++r) {
    float* row = scores + r * kTile;
    const std::int64_t seen = std::clamp<std::int64_t>(square.visible + r, 0, square.keys);
    std::fill_n(row, square.hidden(r), kMinusInfinity);
    std::fill(row + seen, row + std::max(seen, square.columns(r)), kMinusInfinity);
  }
}

/// Scores to exp(score - new maximum); earlier results of the rows are scaled to the new maximum.
void update_softmax(const Square& square, const Tiles& tiles) {
  float* maximum = tiles.maximum + square.first;
  float* sum = tiles.sum + square.first;
  std::copy_n(maximum, square.rows, tiles.previous);
  for (std::int64_t r = 0; r < square.rows; ++r) {
    const float* row = tiles.scores + r * kTile;
    const std::int64_t columns = square.columns(r);
    float largest = maximum[r];
#pragma omp simd reduction(max : largest)
    for (std::int64_t c = 0; c < columns; ++c) largest = row[c] > largest ? row[c] : largest;
    maximum[r] = largest;
  }
  // Where a query has seen no key of its document yet, any finite reference makes zeros of minus infinity.
  const auto reference = [&](std::int64_t r) { return maximum[r] == kMinusInfinity ? 0.0f : maximum[r]; };
  for (std::int64_t r = 0; r < square.rows; ++r) tiles.factor[r] = fast_exp(tiles.previous[r] - reference(r));
  for (std::int64_t r = 0; r < square.rows; ++r) {
    float* row = tiles.scores + r * kTile;
    const std::int64_t columns = square.columns(r);
    const float largest = reference(r);
    const float row_sum = sum_in_lanes<float>(columns, [&](std::int64_t c, float s) {
      row[c] = fast_exp(row[c] - largest);
      return s + row[c];
    });
    const float factor = tiles.factor[r];
    sum[r] = fused(sum[r], factor, row_sum);
    if (factor == 1) continue;
    float* out = tiles.out + (square.first + r) * tiles.width;
    for (std::int64_t c = 0; c < tiles.width; ++c) out[c] *= factor;
  }
}

void attend(const Square& square, std::int64_t head_dim, const Tiles& tiles) {
  const std::int64_t width = tiles.width;
  const LeftOperand q = straight(tiles.q + square.first * width, width);
  const Result scores{tiles.scores, kTile};
  const Result out{tiles.out + square.first * width, width};
  if (square.is_lower())
    multiply_to_lower(square.rows, head_dim, q, {tiles.keys, kTile}, scores);
  else
    multiply({square.rows, padded(square.keys), head_dim}, q, {tiles.keys, kTile}, scores);
  if (square.visible < padded(square.keys) || square.hidden(square.rows - 1) > 0) mask(square, tiles.scores);
  update_softmax(square, tiles);
  if (square.is_lower())
    multiply_add_lower(square.rows, width, tiles.scores, kTile, {tiles.v, width}, out);
  else
    multiply_add({square.rows, width, square.keys}, straight(tiles.scores, kTile), {tiles.v, width}, out);
}

void load_keys(const Problem& problem, const Part& part, const Tiles& tiles) {
  load_rows(problem.k, part, 1, tiles.key_rows, tiles.width);
  transpose_tile(tiles.key_rows, padded(part.rows), tiles.width, tiles.width, tiles.keys, kTile);
  load_rows(problem.v, part, 1, tiles.v, tiles.width);
}

/// Queries [first, first + count) of one head of one sequence.
void attend_segment(const Problem& problem, std::int64_t batch, std::int64_t head, std::int64_t first,
                    std::int64_t count) {
  thread_local Buffer buffer;
  const AttentionShape& shape = problem.shape;
  const Tiles tiles(buffer, shape.head_dim);
  const Part queries{batch * shape.sequence + first, count, head * shape.head_dim, shape.head_dim};
  load_rows(problem.q, queries, shape.scale, tiles.q, tiles.width);
  std::fill_n(tiles.out, count * tiles.width, 0.0f);
  std::fill_n(tiles.maximum, count, kMinusInfinity);
  std::fill_n(tiles.sum, count, 0.0f);

  const std::int64_t kv_col = head / (shape.heads / shape.kv_heads) * shape.head_dim;
  const std::int64_t end = problem.cached + first + count;  // of the keys that the last query sees
  const std::int32_t* starts =
      problem.document_starts == nullptr ? nullptr : problem.document_starts + queries.row;
  const std::int64_t begin = starts == nullptr ? 0 : starts[0] / kTile * kTile;  // later queries see no more
  for (std::int64_t key = begin; key < end; key += kTile) {
    const std::int64_t keys = std::min(kTile, end - key);
    load_keys(problem, {batch * problem.keys() + key, keys, kv_col, shape.head_dim}, tiles);
    for (std::int64_t row = 0; row < count; row += kTile) {
      const std::int64_t rows = std::min(kTile, count - row);
      const std::int64_t visible = problem.cached + first + row - key + 1;
      if (visible + rows <= 1) continue;  // even the last query comes before these keys
      const Square square{row, rows, keys, visible, key, starts == nullptr ? nullptr : starts + row};
      if (square.hidden(0) == keys) continue;  // even the first query's document begins after these keys
      attend(square, shape.head_dim, tiles);
    }
  }

  for (std::int64_t r = 0; r < count; ++r) {
    const float inverse = 1.0f / tiles.sum[r];
    float* out = tiles.out + r * tiles.width;
    for (std::int64_t c = 0; c < tiles.width; ++c) out[c] *= inverse;
  }
  store_rows(tiles.out, tiles.width, problem.out, queries);
  if (problem.log_sum_exp == nullptr) return;
  float* log_sum_exp = problem.log_sum_exp + (batch * shape.heads + head) * shape.sequence + first;
  for (std::int64_t r = 0; r < count; ++r) log_sum_exp[r] = tiles.maximum[r] + std::log(tiles.sum[r]);
}

void attend_all(Threads& threads, const Problem& problem) {
  const AttentionShape& shape = problem.shape;
  const std::int64_t segments = ceil_div(shape.sequence, kSegment);
  const std::int64_t heads = shape.batch * shape.heads;
  // Short sequences, and single tokens, are not worth a thread for each head.
  constexpr std::int64_t kProductsPerTask = 1 << 18;
  const std::int64_t products = std::min(kSegment, shape.sequence) * problem.keys() * shape.head_dim;
  const std::int64_t heads_per_task = ceil_div(kProductsPerTask, products);
  const std::int64_t tasks = ceil_div(heads, heads_per_task);
  threads.parallel_for(segments * tasks, [&](std::int64_t task) {
    const std::int64_t segment = segments - 1 - task / tasks;  // the longest ones first
    const std::int64_t first = segment * kSegment;
    const std::int64_t first_head = task % tasks * heads_per_task;
    for (std::int64_t head = first_head; head < std::min(heads, first_head + heads_per_task); ++head)
      attend_segment(problem, head / shape.heads, head % shape.heads, first,
                     std::min(kSegment, shape.sequence - first));
  });
}

}  // namespace

void attention(Threads& threads, const AttentionForward& op) {
  check(op);
  attend_all(threads, {op.shape, 0, op.q, op.k, op.v, op.out, op.log_sum_exp, op.document_starts});
}

void attention(Threads& threads, const AttentionDecode& op) {
  check(op);
  attend_all(threads, {op.shape, op.cached, op.q, op.k, op.v, op.out, nullptr, nullptr});
}

}  // namespace tetrad::cpu
