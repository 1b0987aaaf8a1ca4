// SPDX-License-Identifier: Apache-2.0
// One token through convolution and recurrence.

#include <algorithm>
#include <cmath>
#include <vector>

#include "tetrad/backend/cpu/mamba2.h"
#include "tetrad/backend/cpu/math.h"
#include "tetrad/backend/cpu/rows.h"
#include "tetrad/backend/cpu/sums.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

/// The convolution's result for the new token; its state moves on by one token.
std::vector<float> convolve(const Mamba2Step& op) {
  const std::int64_t channels = op.shape.conv_channels();
  const std::int64_t kernel = op.kernel;
  std::vector<float> input(static_cast<std::size_t>(channels));
  std::vector<float> out(input.size());
  const bool is_bf16 = op.xbc.dtype == DType::bf16;
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto at = static_cast<std::size_t>(c);
    input[at] = is_bf16 ? static_cast<const Bf16*>(op.xbc.data)[c].to_f32()
                        : static_cast<const float*>(op.xbc.data)[c];
    const float* weight = op.conv_weight + c * kernel;
    float sum = op.conv_bias[c];
    for (std::int64_t j = 0; j + 1 < kernel; ++j)
      sum = fused(weight[j], op.conv_state[j * channels + c], sum);
    sum = fused(weight[kernel - 1], input[at], sum);
    out[at] = is_bf16 ? round_to_bf16(silu(sum)) : silu(sum);
  }
  if (kernel > 1) {
    std::copy(op.conv_state + channels, op.conv_state + (kernel - 1) * channels, op.conv_state);
    std::copy(input.begin(), input.end(), op.conv_state + (kernel - 2) * channels);
  }
  return out;
}

void step_head(const Mamba2Step& op, const float* xbc, std::int64_t head) {
  const Mamba2Shape& shape = op.shape;
  const std::int64_t group = head / (shape.heads / shape.groups);
  const float* x = xbc + head * shape.head_dim;
  const float* b = xbc + shape.inner() + group * shape.state;
  const float* c = b + shape.groups * shape.state;
  const float raw = op.dt.dtype == DType::bf16 ? static_cast<const Bf16*>(op.dt.data)[head].to_f32()
                                               : static_cast<const float*>(op.dt.data)[head];
  const float dt = softplus(raw + op.dt_bias[head]);
  const float decay = fast_exp(dt * -fast_exp(op.a_log[head]));
  for (std::int64_t p = 0; p < shape.head_dim; ++p) {
    float* state = op.ssm_state + (head * shape.head_dim + p) * shape.state;
    const float scaled = dt * x[p];
    const float sum = sum_in_lanes<float>(shape.state, [&](std::int64_t n, float s) {
      state[n] = fused(state[n], decay, scaled * b[n]);
      return fused(state[n], c[n], s);
    });
    const float y = fused(op.d[head], x[p], sum);
    store_rows(&y, 1, op.y, {0, 1, head * shape.head_dim + p, 1});
  }
}

}  // namespace

void mamba2_step(Threads& threads, const Mamba2Step& op) {
  check(op);
  const std::vector<float> xbc = convolve(op);
  // Heads of a small model are not worth a thread each.
  constexpr std::int64_t kStatesPerTask = 1 << 16;
  const std::int64_t heads = op.shape.heads;
  const std::int64_t heads_per_task = ceil_div(kStatesPerTask, op.shape.head_dim * op.shape.state);
  threads.parallel_for(ceil_div(heads, heads_per_task), [&](std::int64_t task) {
    const std::int64_t first = task * heads_per_task;
    for (std::int64_t head = first; head < std::min(heads, first + heads_per_task); ++head)
      step_head(op, xbc.data(), head);
  });
}

}  // namespace tetrad::cpu
