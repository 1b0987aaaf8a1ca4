// SPDX-License-Identifier: Apache-2.0
// One token through convolution and recurrence.

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/math.cuh"
#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/backend/cuda/mamba2/mamba2.h"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

/// A thread for each channel: the convolution's result, rounded to the activations' type, to `out`; the
/// channel's state moves on by one token.
template <typename T>
__global__ void step_conv_kernel(std::int64_t channels, std::int64_t kernel, const T* xbc,
                                 const float* weight, const float* bias, float* state, float* out) {
  const std::int64_t channel = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (channel >= channels) return;
  const float input = to_f32(xbc[channel]);
  const float* taps = weight + channel * kernel;
  float sum = bias[channel];
  for (std::int64_t j = 0; j + 1 < kernel; ++j) {
    const float earlier = state[j * channels + channel];
    sum += taps[j] * earlier;
    if (j > 0) state[(j - 1) * channels + channel] = earlier;
  }
  if (kernel > 1) state[(kernel - 2) * channels + channel] = input;
  sum += taps[kernel - 1] * input;
  T rounded;
  assign(rounded, silu(sum));
  out[channel] = to_f32(rounded);
}

/// A warp for each channel of each head.
template <typename T>
__global__ void step_state_kernel(Mamba2Shape shape, const float* xbc, const T* dt_raw, const float* dt_bias,
                                  const float* a_log, const float* d, float* states, T* y) {
  const std::int64_t inner = shape.heads * shape.head_dim;
  const std::int64_t channel = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (channel >= inner) return;
  const std::int64_t head = channel / shape.head_dim;
  const std::int64_t group = head / (shape.heads / shape.groups);
  const float* b = xbc + inner + group * shape.state;
  const float* c = b + shape.groups * shape.state;
  const float dt = softplus(to_f32(dt_raw[head]) + dt_bias[head]);
  const float decay = expf(dt * -expf(a_log[head]));
  const float x = xbc[channel];
  float* state = states + channel * shape.state;
  float sum = 0;
  for (std::int64_t n = threadIdx.x % kWarp; n < shape.state; n += kWarp) {
    const float next = state[n] * decay + dt * x * b[n];
    state[n] = next;
    sum += next * c[n];
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) assign(y[channel], sum + d[head] * x);
}

}  // namespace

void mamba2_step(Device& device, const Mamba2Step& op) {
  check(op);
  const std::int64_t channels = op.shape.conv_channels();
  float* xbc = device.scratch<float>(Device::scan, channels);
  with_type(op.xbc.dtype, [&]<typename T>(T) {
    launch(device, ceil_div(channels, kThreads), kThreads, 0, step_conv_kernel<T>, channels, op.kernel,
           static_cast<const T*>(op.xbc.data), op.conv_weight, op.conv_bias, op.conv_state, xbc);
    launch(device, ceil_div(op.shape.inner(), kWarps), kThreads, 0, step_state_kernel<T>, op.shape,
           static_cast<const float*>(xbc), static_cast<const T*>(op.dt.data), op.dt_bias, op.a_log, op.d,
           op.ssm_state, static_cast<T*>(op.y.data));
  });
}

}  // namespace tetrad::cuda
