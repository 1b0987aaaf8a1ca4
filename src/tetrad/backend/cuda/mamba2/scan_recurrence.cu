// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/mamba2/scan_kernels.cuh"

#include <algorithm>

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/math.cuh"
#include "tetrad/backend/cuda/common/reduce.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kMostWarps = 4;
constexpr std::int64_t kSharedBytes = 48 * 1024;

template <typename T>
__global__ void steps_kernel(Extent extent, ScanViews<T> in, std::int64_t sequence, Steps steps) {
  for_each_group<1>(extent, [&](std::int64_t row, std::int64_t head) {
    const float step = softplus(to_f32(in.dt.row(row)[head]) + in.dt_bias[head]);
    steps.dt[row * extent.cols + head] = step;
    steps.decay[row * extent.cols + head] =
        begins_document(in.document_starts, row, row % sequence) ? 0.0f : expf(step * -expf(in.a_log[head]));
  });
}

/// What a warp works on: one channel of one head, over a run of tiles.
struct Channel {
  std::int64_t batch, run, head, channel;  //!< `channel` within the head

  /// Warps count channels, then heads, then runs, then sequences.
  __device__ Channel(const Mamba2Shape& shape, std::int64_t runs)
      : Channel(shape, runs, std::int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp) {}

  __device__ std::int64_t group(const Mamba2Shape& shape) const {
    return head / (shape.heads / shape.groups);
  }
  /// Where the channel's state of a (sequence, tile or chunk) lies; `count` of these are in a sequence.
  __device__ std::int64_t state_index(const Mamba2Shape& shape, std::int64_t index,
                                      std::int64_t count) const {
    return (((batch * count + index) * shape.heads + head) * shape.head_dim + channel) * shape.state;
  }

 private:
  __device__ Channel(const Mamba2Shape& shape, std::int64_t runs, std::int64_t warp)
      : batch(warp / shape.head_dim / shape.heads / runs),
        run(warp / shape.head_dim / shape.heads % runs),
        head(warp / shape.head_dim % shape.heads),
        channel(warp % shape.head_dim) {}
};

/// Each lane of a warp has its own elements of the state, in shared memory because there may be any number.
__device__ inline float* warp_state(const Mamba2Shape& shape) {
  extern __shared__ float shared_states[];
  return shared_states + threadIdx.x / kWarp * shape.state;
}

/// Calls body(n) for the lane's elements of the state.
template <typename Body>
__device__ inline void for_each_state(const Mamba2Shape& shape, const Body& body) {
  for (std::int64_t n = threadIdx.x % kWarp; n < shape.state; n += kWarp) body(n);
}

/// `runs` runs of tiles in a sequence, each from its state in `start` (null: from zero) on.
template <typename T, bool kWithOutput>
__global__ void recurrence_kernel(Mamba2Shape shape, ScanViews<T> in, Steps steps, Tiles tiles,
                                  std::int64_t runs, const float* start, float* states, View<T> y) {
  const Channel at(shape, runs);
  if (at.batch >= shape.batch) return;
  float* state = warp_state(shape);
  for_each_state(shape, [&](std::int64_t n) {
    state[n] = start == nullptr ? 0.0f : start[at.state_index(shape, at.run, runs) + n];
  });
  const std::int64_t column = at.head * shape.head_dim + at.channel;
  const std::int64_t tiles_of_run = tiles.count / runs;
  for (std::int64_t tile = at.run * tiles_of_run; tile < (at.run + 1) * tiles_of_run; ++tile) {
    const Tiles::Span span = tiles.span(tile);
    if (states != nullptr)
      for_each_state(
          shape, [&](std::int64_t n) { states[at.state_index(shape, tile, tiles.count) + n] = state[n]; });
    for (std::int64_t t = span.first; t < span.last; ++t) {
      const std::int64_t row = at.batch * shape.sequence + t;
      const float x = to_f32(in.x.row(row)[column]);
      const float decay = steps.decay[row * shape.heads + at.head];
      const float scaled = steps.dt[row * shape.heads + at.head] * x;
      const T* b = in.b.row(row) + at.group(shape) * shape.state;
      const T* c = in.c.row(row) + at.group(shape) * shape.state;
      float sum = 0;
      for_each_state(shape, [&](std::int64_t n) {
        const float next = state[n] * decay + scaled * to_f32(b[n]);
        state[n] = next;
        if constexpr (kWithOutput) sum += next * to_f32(c[n]);
      });
      if constexpr (kWithOutput) {
        sum = warp_sum(sum);
        if (threadIdx.x % kWarp == 0) assign(y.row(row)[column], sum + in.d[at.head] * x);
      }
    }
  }
}

template <typename T>
__global__ void state_gradients_kernel(Mamba2Shape shape, View<const T> c, Steps steps, Tiles tiles,
                                       View<const T> dy, float* dstates) {
  const Channel at(shape, 1);
  if (at.batch >= shape.batch) return;
  float* gradient = warp_state(shape);
  for_each_state(shape, [&](std::int64_t n) { gradient[n] = 0; });
  const std::int64_t column = at.head * shape.head_dim + at.channel;
  for (std::int64_t tile = tiles.count - 1; tile >= 0; --tile) {
    const Tiles::Span span = tiles.span(tile);
    for_each_state(
        shape, [&](std::int64_t n) { dstates[at.state_index(shape, tile, tiles.count) + n] = gradient[n]; });
    for (std::int64_t t = span.last - 1; t >= span.first; --t) {
      const std::int64_t row = at.batch * shape.sequence + t;
      const float from_output = to_f32(dy.row(row)[column]);
      const float decay = steps.decay[row * shape.heads + at.head];
      const T* keys = c.row(row) + at.group(shape) * shape.state;
      for_each_state(shape, [&](std::int64_t n) {
        gradient[n] = decay * (gradient[n] + from_output * to_f32(keys[n]));
      });
    }
  }
}

/// A warp for each channel of each run.
template <typename... Parameters, typename... Arguments>
void launch_channels(Device& device, const Mamba2Shape& shape, std::int64_t runs,
                     void (*kernel)(Parameters...), Arguments&&... arguments) {
  const std::int64_t state_bytes = shape.state * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t warps = std::clamp<std::int64_t>(kSharedBytes / state_bytes, 1, kMostWarps);
  launch(device, ceil_div(shape.batch * runs * shape.inner(), warps), static_cast<int>(warps) * kWarp,
         static_cast<std::size_t>(warps * state_bytes), kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace

void scan_steps(Device& device, const Mamba2Shape& shape, const ScanInputs& in, const Steps& steps) {
  const Extent extent{shape.batch * shape.sequence, shape.heads};
  with_type(in.dt.dtype, [&]<typename T>(T) {
    launch_groups<1>(device, extent, steps_kernel<T>, extent, views_of<T>(in), shape.sequence, steps);
  });
}

void scan_recurrence(Device& device, const Mamba2Shape& shape, const ScanInputs& in, const Steps& steps,
                     const Tiles& tiles, float* states, const MutableMatrixView& y) {
  with_type(in.x.dtype, [&]<typename T>(T) {
    launch_channels(device, shape, 1, recurrence_kernel<T, true>, shape, views_of<T>(in), steps, tiles,
                    std::int64_t{1}, static_cast<const float*>(nullptr), states, view_as<T>(y));
  });
}

void scan_tile_states(Device& device, const Mamba2Shape& shape, const ScanInputs& in, const Steps& steps,
                      const Tiles& tiles, const float* chunk_states, float* states) {
  with_type(in.x.dtype, [&]<typename T>(T) {
    launch_channels(device, shape, shape.chunks(), recurrence_kernel<T, false>, shape, views_of<T>(in), steps,
                    tiles, shape.chunks(), chunk_states, states, View<T>{nullptr, 0});
  });
}

void scan_state_gradients(Device& device, const Mamba2Shape& shape, const ScanInputs& in, const Steps& steps,
                          const Tiles& tiles, const MatrixView& dy, float* dstates) {
  with_type(in.x.dtype, [&]<typename T>(T) {
    launch_channels(device, shape, 1, state_gradients_kernel<T>, shape, view_as<T>(in.c), steps, tiles,
                    view_as<T>(dy), dstates);
  });
}

}  // namespace tetrad::cuda
