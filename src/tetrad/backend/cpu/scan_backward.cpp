// SPDX-License-Identifier: Apache-2.0
// The selective scan, backward, in chunks.
//
// With E[t, s] the product of the decays s + 1 … t, H the state before the chunk and dH' the gradient of the
// state after it, y and the state after the chunk are (scan.cpp)
//   y[t] = sum over s <= t of (C[t] . B[s]) E[t, s] dt[s] x[s]  +  E[t, before] H . C[t]  +  D x[t]
//   H'   = E[last, before] H  +  sum over s of E[last, s] dt[s] x[s] outer B[s].
// First every chunk computes what its own outputs add to the gradient of the state before it, then those are
// passed along each sequence, then every chunk computes its gradients.

#include <algorithm>
#include <vector>

#include "tetrad/backend/cpu/mamba2.h"
#include "tetrad/backend/cpu/math.h"
#include "tetrad/backend/cpu/product.h"
#include "tetrad/backend/cpu/scan_chunk.h"
#include "tetrad/backend/cpu/sums.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

/// One thread's f32 matrices of a task: tokens (L), head_dim (P) and state (N), each padded.
struct Matrices {
  std::int64_t tokens, width, state, heads;
  ChunkSteps steps;
  float *b, *c, *db, *dc;   // [L, N]
  float* b_columns;         // [N, L]
  float* from_state;        // [L, N] one head's share of db or dc that comes through a state
  float* products;          // [L, L] C . B^T
  float* dproducts;         // [L, L] its gradient, summed over heads
  float *mix, *dmix;        // [L, L] what y takes of each x, and the gradient
  float *x, *dy, *dx;       // [L, P]
  float* x_columns;         // [P, L]
  float *h, *dh;            // [P, N] state before the chunk; gradient of the state after it
  float* dh_columns;        // [N, P]
  float *decays, *through;  // [L]
  float *ddt, *dlog;        // [L]
  float* ddt_rows;          // [L, heads of the group]

  static std::int64_t size(const Mamba2Shape& shape, std::int64_t tokens) {
    const std::int64_t width = padded(shape.head_dim);
    const std::int64_t state = padded(shape.state);
    return ChunkSteps::size(tokens) + 6 * tokens * state + 4 * tokens * tokens + 4 * tokens * width +
           3 * width * state + 4 * tokens + tokens * (shape.heads / shape.groups);
  }

  Matrices(Scratch scratch, const Mamba2Shape& shape, std::int64_t padded_tokens)
      : tokens(padded_tokens),
        width(padded(shape.head_dim)),
        state(padded(shape.state)),
        heads(shape.heads / shape.groups),
        steps(scratch, tokens),
        b(scratch.take(tokens * state)),
        c(scratch.take(tokens * state)),
        db(scratch.take(tokens * state)),
        dc(scratch.take(tokens * state)),
        b_columns(scratch.take(tokens * state)),
        from_state(scratch.take(tokens * state)),
        products(scratch.take(tokens * tokens)),
        dproducts(scratch.take(tokens * tokens)),
        mix(scratch.take(tokens * tokens)),
        dmix(scratch.take(tokens * tokens)),
        x(scratch.take(tokens * width)),
        dy(scratch.take(tokens * width)),
        dx(scratch.take(tokens * width)),
        x_columns(scratch.take(tokens * width)),
        h(scratch.take(width * state)),
        dh(scratch.take(width * state)),
        dh_columns(scratch.take(width * state)),
        decays(scratch.take(tokens)),
        through(scratch.take(tokens)),
        ddt(scratch.take(tokens)),
        dlog(scratch.take(tokens)),
        ddt_rows(scratch.take(tokens * heads)) {}
};

Matrices matrices_of(const Mamba2Shape& shape) {
  thread_local Buffer buffer;
  const std::int64_t tokens = padded(std::min(shape.chunk, shape.sequence));
  return {Scratch(buffer, Matrices::size(shape, tokens)), shape, tokens};
}

/// Sums of one (sequence, chunk, head), to be added up in a fixed order.
struct ParameterSums {
  float dt_bias, a, d;
};

/// What a backward pass keeps between its phases.
struct Passing {
  float* total_decay;   //!< [batch, chunks, heads]
  float* dstates;       //!< [batch, chunks, heads, head_dim, state]: gradient of the state after each chunk
  ParameterSums* sums;  //!< [batch, chunks, heads]
};

/// What the chunk's outputs add to the gradient of the state before it: sum of E[t, before] dy[t] outer C[t].
void contribute(const ScanBackward& op, const ChunkTask& task, const Matrices& m, const Passing& passing) {
  const Mamba2Shape& shape = op.shape;
  load_rows(op.in.c, task.rows_of_group(shape.state), 1, m.c, m.state);
  for (std::int64_t head = task.head; head < task.head + task.heads; ++head) {
    m.steps.compute(op.in, task, head, decay_rate(op.in, head));
    const std::int64_t index = task.index_of(shape, head);
    passing.total_decay[index] = m.steps.prefix[task.length - 1];
    load_rows(op.dy, task.rows_of_head(head, shape.head_dim), 1, m.dy, m.width);
    scale_rows(m.dy, m.steps.prefix, task.length, m.width, m.dy);
    multiply({shape.head_dim, m.state, task.length}, transposed(m.dy, m.width), {m.c, m.state},
             {m.dh, m.state});
    float* previous = passing.dstates + (index - shape.heads) * shape.head_dim * shape.state;
    store_rows(m.dh, m.state, mutable_view_of(previous, shape.head_dim, shape.state),
               {0, shape.head_dim, 0, shape.state});
  }
}

/// From mix = products * E * dt in the lower triangle: mix itself, the gradient of the products (added), and
/// the share of the steps (ddt).
void differentiate_mix(const Matrices& m, std::int64_t length) {
  const float* dt = m.steps.dt;
  float* decays = m.decays;    // E[t, s] for the row's t
  float* through = m.through;  // sum over t > s of dmix * products * E
  std::fill_n(decays, m.tokens, 0.0f);
  std::fill_n(through, m.tokens, 0.0f);
  for (std::int64_t t = 0; t < length; ++t) {
    const std::int64_t columns = padded(t + 1);
    const float decay = m.steps.decay[t];
    const float* products = m.products + t * m.tokens;
    const float* dmix = m.dmix + t * m.tokens;
    float* mix = m.mix + t * m.tokens;
    float* dproducts = m.dproducts + t * m.tokens;
    for (std::int64_t s = 0; s < columns; ++s) decays[s] *= decay;
    decays[t] = 1;
#pragma omp simd
    for (std::int64_t s = 0; s < columns; ++s) {
      const float decay_dt = decays[s] * dt[s];
      mix[s] = products[s] * decay_dt;
      dproducts[s] = fused(dmix[s], decay_dt, dproducts[s]);
      through[s] = fused(dmix[s], products[s] * decays[s], through[s]);
    }
  }
  std::copy_n(through, length, m.ddt);
}

/// The share of the logarithm of each decay: dlog[r] = sum of dmix * mix over all t >= r > s, the pairs whose
/// E[t, s] it is a factor of. Not as a difference of sums over rows and columns: a step so large that nothing
/// is left after it must get exactly nothing.
void differentiate_decays(const Matrices& m, std::int64_t length) {
  float* columns_below = m.decays;  // sum over t >= r of dmix[t, s] * mix[t, s], for s < r
  std::fill_n(columns_below, m.tokens, 0.0f);
  for (std::int64_t r = length - 1; r >= 0; --r) {
    const float* mix = m.mix + r * m.tokens;
    const float* dmix = m.dmix + r * m.tokens;
    const std::int64_t columns = padded(r + 1);
    for (std::int64_t s = 0; s < columns; ++s) columns_below[s] = fused(dmix[s], mix[s], columns_below[s]);
    columns_below[r] = 0;
    m.dlog[r] =
        sum_in_lanes<float>(columns, [&](std::int64_t s, float sum) { return sum + columns_below[s]; });
  }
}

void load_state(const Mamba2Shape& shape, const float* states, std::int64_t index, const Matrices& m,
                float* out) {
  const std::int64_t size = shape.head_dim * shape.state;
  load_rows(view_of(states + index * size, shape.head_dim, shape.state), {0, shape.head_dim, 0, shape.state},
            1, out, m.state);
}

/// Through E[t, before] H . C[t], of which decays 0 … t are factors.
void differentiate_state_before(const Mamba2Shape& shape, std::int64_t length, const Matrices& m) {
  multiply({length, m.state, shape.head_dim}, straight(m.dy, m.width), {m.h, m.state},
           {m.from_state, m.state});
  float later = 0;
  for (std::int64_t t = length - 1; t >= 0; --t) {
    const float left = m.steps.prefix[t];
    float* from_state = m.from_state + t * m.state;
    float* dc = m.dc + t * m.state;
    for (std::int64_t n = 0; n < m.state; ++n) {
      from_state[n] *= left;
      dc[n] += from_state[n];
    }
    later += dot(from_state, m.c + t * m.state, m.state);
    m.dlog[t] += later;
  }
}

/// Through the state after the chunk: E[last, before] H, of which all decays are factors, and
/// E[last, s] dt[s] x[s] outer B[s], of which those after s are. Writes dx.
void differentiate_state_after(const Mamba2Shape& shape, const ChunkTask& task, const Matrices& m) {
  transpose_tile(m.dh, m.width, m.state, m.state, m.dh_columns, m.width);
  multiply({task.length, m.width, shape.state}, straight(m.b, m.state), {m.dh_columns, m.width},
           {m.dx, m.width});
  multiply({task.length, m.state, shape.head_dim}, straight(m.x, m.width), {m.dh, m.state},
           {m.from_state, m.state});
  float earlier =
      task.is_first ? 0 : m.steps.prefix[task.length - 1] * dot(m.h, m.dh, shape.head_dim * m.state);
  for (std::int64_t s = 0; s < task.length; ++s) {
    float* dx = m.dx + s * m.width;
    const float reaching = m.steps.suffix[s];
    const float weight = reaching * m.steps.dt[s];
    const float share = dot(dx, m.x + s * m.width, m.width);
    m.ddt[s] = fused(reaching, share, m.ddt[s]);
    m.dlog[s] += earlier;
    earlier = fused(weight, share, earlier);
    const float* from_state = m.from_state + s * m.state;
    float* db = m.db + s * m.state;
    for (std::int64_t c = 0; c < m.width; ++c) dx[c] *= weight;
    for (std::int64_t n = 0; n < m.state; ++n) db[n] = fused(weight, from_state[n], db[n]);
  }
}

/// ddt and dlog to the gradient of the raw steps, and what the chunk adds to the parameters.
ParameterSums differentiate_steps(const Matrices& m, std::int64_t length, float a,
                                  std::int64_t head_in_group) {
  ParameterSums sums{0, 0, 0};
  for (std::int64_t s = 0; s < length; ++s)
    m.ddt[s] = fused(m.dlog[s], a, m.ddt[s]) * sigmoid(m.steps.raw[s]);
  for (std::int64_t s = 0; s < length; ++s) {
    sums.dt_bias += m.ddt[s];
    m.ddt_rows[s * m.heads + head_in_group] = m.ddt[s];
  }
  sums.a = a * dot(m.dlog, m.steps.dt, length);  // d a / d A_log = a
  sums.d = dot(m.dy, m.x, length * m.width);
  return sums;
}

void differentiate_head(const ScanBackward& op, const ChunkTask& task, std::int64_t head, const Matrices& m,
                        const Passing& passing) {
  const Mamba2Shape& shape = op.shape;
  const std::int64_t length = task.length;
  const std::int64_t index = task.index_of(shape, head);
  const Part part = task.rows_of_head(head, shape.head_dim);
  const float a = decay_rate(op.in, head);
  m.steps.compute(op.in, task, head, a);
  load_rows(op.in.x, part, 1, m.x, m.width);
  load_rows(op.dy, part, 1, m.dy, m.width);
  transpose_tile(m.x, padded(length), m.width, m.width, m.x_columns, m.tokens);
  multiply_to_lower(length, shape.head_dim, straight(m.dy, m.width), {m.x_columns, m.tokens},
                    {m.dmix, m.tokens});
  differentiate_mix(m, length);
  differentiate_decays(m, length);
  if (!task.is_first) {
    load_state(shape, op.chunk_states, index, m, m.h);
    differentiate_state_before(shape, length, m);
  }
  if (task.is_last) {
    std::fill_n(m.dx, length * m.width, 0.0f);
  } else {
    load_state(shape, passing.dstates, index, m, m.dh);
    differentiate_state_after(shape, task, m);
  }
  const float d = op.in.d[head];
  for (std::int64_t i = 0; i < length * m.width; ++i) m.dx[i] = fused(d, m.dy[i], m.dx[i]);
  multiply_add_lower_transposed(length, m.width, m.mix, m.tokens, {m.dy, m.width}, {m.dx, m.width});
  store_rows(m.dx, m.width, op.dx, part);
  passing.sums[index] = differentiate_steps(m, length, a, head - task.head);
}

void differentiate_chunk(const ScanBackward& op, const ChunkTask& task, const Matrices& m,
                         const Passing& passing) {
  const Mamba2Shape& shape = op.shape;
  const std::int64_t length = task.length;
  const Part part = task.rows_of_group(shape.state);
  load_rows(op.in.b, part, 1, m.b, m.state);
  load_rows(op.in.c, part, 1, m.c, m.state);
  transpose_tile(m.b, padded(length), m.state, m.state, m.b_columns, m.tokens);
  multiply_to_lower(length, shape.state, straight(m.c, m.state), {m.b_columns, m.tokens},
                    {m.products, m.tokens});
  std::fill_n(m.dproducts, length * m.tokens, 0.0f);
  std::fill_n(m.db, length * m.state, 0.0f);
  std::fill_n(m.dc, length * m.state, 0.0f);
  for (std::int64_t head = task.head; head < task.head + task.heads; ++head)
    differentiate_head(op, task, head, m, passing);
  multiply_add_lower(length, m.state, m.dproducts, m.tokens, {m.b, m.state}, {m.dc, m.state});
  multiply_add_lower_transposed(length, m.state, m.dproducts, m.tokens, {m.c, m.state}, {m.db, m.state});
  store_rows(m.db, m.state, op.db, part);
  store_rows(m.dc, m.state, op.dc, part);
  store_rows(m.ddt_rows, m.heads, op.ddt, {task.row, length, task.head, task.heads});
}

/// Over sequences and chunks, in their order.
void add_parameter_gradients(const ScanBackward& op, const ParameterSums* sums) {
  const Mamba2Shape& shape = op.shape;
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    ParameterSums total{0, 0, 0};
    for (std::int64_t chunk = 0; chunk < shape.batch * shape.chunks(); ++chunk) {
      const ParameterSums& part = sums[chunk * shape.heads + head];
      total.dt_bias += part.dt_bias;
      total.a += part.a;
      total.d += part.d;
    }
    op.ddt_bias[head] += total.dt_bias;
    op.da_log[head] += total.a;
    op.dd[head] += total.d;
  }
}

}  // namespace

void scan(Threads& threads, const ScanBackward& op) {
  check(op);
  thread_local Buffer buffer;
  const Mamba2Shape& shape = op.shape;
  const std::int64_t heads = shape.batch * shape.chunks() * shape.heads;
  const std::int64_t state_size = shape.head_dim * shape.state;
  Scratch scratch(buffer, padded(heads) + padded(heads * state_size));
  std::vector<ParameterSums> sums(static_cast<std::size_t>(heads));
  const Passing passing{scratch.take(padded(heads)), scratch.take(padded(heads * state_size)), sums.data()};
  threads.parallel_for(chunk_tasks(shape), [&](std::int64_t index) {
    const ChunkTask task(shape, index);
    if (!task.is_first) contribute(op, task, matrices_of(shape), passing);
  });
  pass_states(threads, shape, Direction::backwards, passing.total_decay, passing.dstates);
  threads.parallel_for(chunk_tasks(shape), [&](std::int64_t index) {
    differentiate_chunk(op, ChunkTask(shape, index), matrices_of(shape), passing);
  });
  add_parameter_gradients(op, sums.data());
}

}  // namespace tetrad::cpu
