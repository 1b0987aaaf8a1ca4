// SPDX-License-Identifier: Apache-2.0
// The selective scan, forward, in chunks.
//
// Within a chunk the recurrence is a product with a lower triangular matrix: with E[t, s] the product of the
// decays s + 1 … t and H the state before the chunk,
//   y[t] = sum over s <= t of (C[t] . B[s]) E[t, s] dt[s] x[s]  +  E[t, before] H . C[t]  +  D x[t].
// First every chunk computes what its own tokens add to the state, then the states are passed along each
// sequence, then every chunk computes its output.

#include <algorithm>

#include "tetrad/backend/cpu/mamba2.h"
#include "tetrad/backend/cpu/product.h"
#include "tetrad/backend/cpu/scan_chunk.h"
#include "tetrad/backend/cpu/simd.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

/// One thread's f32 matrices of a task: tokens (L), head_dim (P) and state (N), each padded.
struct Matrices {
  std::int64_t tokens, width, state;
  ChunkSteps steps;
  float *b, *c;           // [L, N]
  float* b_columns;       // [N, L]
  float* products;        // [L, L] C . B^T
  float* mix;             // [L, L] what y takes of each x
  float *x, *y;           // [L, P]
  float* h;               // [P, N]
  float* h_columns;       // [N, P]
  float* decay_times_dt;  // [L]

  static std::int64_t size(const Mamba2Shape& shape, std::int64_t tokens) {
    const std::int64_t width = padded(shape.head_dim);
    const std::int64_t state = padded(shape.state);
    return ChunkSteps::size(tokens) + 3 * tokens * state + 2 * tokens * tokens + 2 * tokens * width +
           2 * width * state + tokens;
  }

  Matrices(Scratch scratch, const Mamba2Shape& shape, std::int64_t padded_tokens)
      : tokens(padded_tokens),
        width(padded(shape.head_dim)),
        state(padded(shape.state)),
        steps(scratch, tokens),
        b(scratch.take(tokens * state)),
        c(scratch.take(tokens * state)),
        b_columns(scratch.take(tokens * state)),
        products(scratch.take(tokens * tokens)),
        mix(scratch.take(tokens * tokens)),
        x(scratch.take(tokens * width)),
        y(scratch.take(tokens * width)),
        h(scratch.take(width * state)),
        h_columns(scratch.take(width * state)),
        decay_times_dt(scratch.take(tokens)) {}
};

Matrices matrices_of(const Mamba2Shape& shape) {
  thread_local Buffer buffer;
  const std::int64_t tokens = padded(std::min(shape.chunk, shape.sequence));
  return {Scratch(buffer, Matrices::size(shape, tokens)), shape, tokens};
}

/// What the chunk's tokens add to the state: sum of E[last, s] dt[s] x[s] outer B[s], for each head.
void contribute(const ScanForward& op, const ChunkTask& task, const Matrices& m, float* total_decay,
                float* states) {
  const Mamba2Shape& shape = op.shape;
  load_rows(op.in.b, task.rows_of_group(shape.state), 1, m.b, m.state);
  for (std::int64_t head = task.head; head < task.head + task.heads; ++head) {
    m.steps.compute(op.in, task, head, decay_rate(op.in, head));
    const std::int64_t index = task.index_of(shape, head);
    total_decay[index] = m.steps.prefix[task.length - 1];
    for (std::int64_t t = 0; t < task.length; ++t) m.steps.suffix[t] *= m.steps.dt[t];
    load_rows(op.in.x, task.rows_of_head(head, shape.head_dim), 1, m.x, m.width);
    scale_rows(m.x, m.steps.suffix, task.length, m.width, m.x);
    multiply({shape.head_dim, m.state, task.length}, transposed(m.x, m.width), {m.b, m.state},
             {m.h, m.state});
    const std::int64_t size = shape.head_dim * shape.state;
    const auto next = mutable_view_of(states + (index + shape.heads) * size, shape.head_dim, shape.state);
    store_rows(m.h, m.state, next, {0, shape.head_dim, 0, shape.state});
  }
}

/// mix[t, s] = products[t, s] * E[t, s] * dt[s] in the blocks of the lower triangle.
void apply_decays(const Matrices& m, std::int64_t length) {
  float* decay_times_dt = m.decay_times_dt;
  std::fill_n(decay_times_dt, m.tokens, 0.0f);
  for (std::int64_t t = 0; t < length; ++t) {
    const std::int64_t columns = padded(t + 1);
    const float decay = m.steps.decay[t];
    const float* products = m.products + t * m.tokens;
    float* mix = m.mix + t * m.tokens;
    for (std::int64_t s = 0; s < columns; ++s) decay_times_dt[s] *= decay;
    decay_times_dt[t] = m.steps.dt[t];
    for (std::int64_t s = 0; s < columns; ++s) mix[s] = products[s] * decay_times_dt[s];
  }
}

/// y = E[t, before] H . C[t] + D x[t].
void start_output(const ScanForward& op, const ChunkTask& task, std::int64_t head, const Matrices& m,
                  const float* states) {
  const Mamba2Shape& shape = op.shape;
  const float d = op.in.d[head];
  if (task.is_first) {  // the state is zero
    for (std::int64_t i = 0; i < task.length * m.width; ++i) m.y[i] = d * m.x[i];
    return;
  }
  const float* state = states + task.index_of(shape, head) * shape.head_dim * shape.state;
  load_rows(view_of(state, shape.head_dim, shape.state), {0, shape.head_dim, 0, shape.state}, 1, m.h,
            m.state);
  transpose_tile(m.h, m.width, m.state, m.state, m.h_columns, m.width);
  multiply({task.length, m.width, shape.state}, straight(m.c, m.state), {m.h_columns, m.width},
           {m.y, m.width});
  for (std::int64_t t = 0; t < task.length; ++t) {
    const float left = m.steps.prefix[t];
    const float* x = m.x + t * m.width;
    float* y = m.y + t * m.width;
    for (std::int64_t c = 0; c < m.width; ++c) y[c] = fused(left, y[c], d * x[c]);
  }
}

void compute_output(const ScanForward& op, const ChunkTask& task, const Matrices& m, const float* states) {
  const Mamba2Shape& shape = op.shape;
  load_rows(op.in.b, task.rows_of_group(shape.state), 1, m.b, m.state);
  load_rows(op.in.c, task.rows_of_group(shape.state), 1, m.c, m.state);
  transpose_tile(m.b, padded(task.length), m.state, m.state, m.b_columns, m.tokens);
  multiply_to_lower(task.length, shape.state, straight(m.c, m.state), {m.b_columns, m.tokens},
                    {m.products, m.tokens});
  for (std::int64_t head = task.head; head < task.head + task.heads; ++head) {
    const Part part = task.rows_of_head(head, shape.head_dim);
    m.steps.compute(op.in, task, head, decay_rate(op.in, head));
    load_rows(op.in.x, part, 1, m.x, m.width);
    start_output(op, task, head, m, states);
    apply_decays(m, task.length);
    multiply_add_lower(task.length, m.width, m.mix, m.tokens, {m.x, m.width}, {m.y, m.width});
    store_rows(m.y, m.width, op.y, part);
  }
}

}  // namespace

void scan(Threads& threads, const ScanForward& op) {
  check(op);
  thread_local Buffer state_buffer;
  thread_local Buffer decay_buffer;
  const Mamba2Shape& shape = op.shape;
  const std::int64_t heads = shape.batch * shape.chunks() * shape.heads;
  float* states = op.chunk_states != nullptr ? op.chunk_states
                                             : workspace(state_buffer, heads * shape.head_dim * shape.state);
  float* total_decay = workspace(decay_buffer, heads);
  threads.parallel_for(chunk_tasks(shape), [&](std::int64_t index) {
    const ChunkTask task(shape, index);
    if (!task.is_last) contribute(op, task, matrices_of(shape), total_decay, states);
  });
  pass_states(threads, shape, Direction::forwards, total_decay, states);
  threads.parallel_for(chunk_tasks(shape), [&](std::int64_t index) {
    compute_output(op, ChunkTask(shape, index), matrices_of(shape), states);
  });
}

}  // namespace tetrad::cpu
