// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/scan_chunk.h"

#include <algorithm>
#include <cmath>

#include "tetrad/backend/cpu/math.h"
#include "tetrad/backend/cpu/product.h"
#include "tetrad/backend/cpu/simd.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {

ChunkTask::ChunkTask(const Mamba2Shape& shape, std::int64_t index)
    : batch(index / shape.groups / shape.chunks()),
      chunk(index / shape.groups % shape.chunks()),
      group(index % shape.groups),
      time(chunk * shape.chunk),
      row(batch * shape.sequence + time),
      length(std::min(shape.chunk, shape.sequence - time)),
      head(group * (shape.heads / shape.groups)),
      heads(shape.heads / shape.groups),
      is_first(chunk == 0),
      is_last(chunk == shape.chunks() - 1) {}

std::int64_t chunk_tasks(const Mamba2Shape& shape) { return shape.batch * shape.chunks() * shape.groups; }

std::int64_t ChunkSteps::size(std::int64_t length) { return 5 * padded(length); }

ChunkSteps::ChunkSteps(Scratch& scratch, std::int64_t length)
    : raw(scratch.take(padded(length))),
      dt(scratch.take(padded(length))),
      decay(scratch.take(padded(length))),
      prefix(scratch.take(padded(length))),
      suffix(scratch.take(padded(length))) {}

void ChunkSteps::compute(const ScanInputs& in, const ChunkTask& task, std::int64_t head, float a) const {
  const std::int64_t length = task.length;
  load_rows(in.dt, {task.row, length, head, 1}, 1, raw, 1);
  const float bias = in.dt_bias[head];
  for (std::int64_t t = 0; t < length; ++t) {
    raw[t] += bias;
    dt[t] = softplus(raw[t]);
    decay[t] = fast_exp(dt[t] * a);
  }
  if (in.document_starts != nullptr)  // nothing of the state is left where a document begins
    for (std::int64_t t = 0; t < length; ++t)
      if (in.document_starts[task.row + t] == task.time + t) decay[t] = 0;
  std::fill(dt + length, dt + padded(length), 0.0f);
  float product = 1;
  for (std::int64_t t = 0; t < length; ++t) prefix[t] = product *= decay[t];
  product = 1;
  for (std::int64_t t = length - 1; t >= 0; --t) {
    suffix[t] = product;
    product *= decay[t];
  }
}

float decay_rate(const ScanInputs& in, std::int64_t head) { return -fast_exp(in.a_log[head]); }

void scale_rows(const float* in, const float* factors, std::int64_t rows, std::int64_t width, float* out) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < width; ++c) out[r * width + c] = factors[r] * in[r * width + c];
}

void pass_states(Threads& threads, const Mamba2Shape& shape, Direction direction, const float* total_decay,
                 float* states) {
  const std::int64_t size = shape.head_dim * shape.state;
  const std::int64_t chunks = shape.chunks();
  const auto step = static_cast<std::int64_t>(direction);
  threads.parallel_for(shape.batch * shape.heads, [&](std::int64_t task) {
    const std::int64_t batch = task / shape.heads;
    const std::int64_t head = task % shape.heads;
    const auto index_of = [&](std::int64_t chunk) { return (batch * chunks + chunk) * shape.heads + head; };
    const std::int64_t first = step > 0 ? 0 : chunks - 1;
    std::fill_n(states + index_of(first) * size, size, 0.0f);
    for (std::int64_t chunk = first + step; chunk >= 0 && chunk < chunks; chunk += step) {
      // Between the states before c - 1 and before c lies chunk c - 1; between those after c and after c + 1,
      // chunk c + 1.
      const std::int64_t between = chunk - step;
      const float decay = total_decay[index_of(between)];
      const float* from = states + index_of(between) * size;
      float* to = states + index_of(chunk) * size;
      for (std::int64_t i = 0; i < size; ++i) to[i] = fused(decay, from[i], to[i]);
    }
  });
}

}  // namespace tetrad::cpu
