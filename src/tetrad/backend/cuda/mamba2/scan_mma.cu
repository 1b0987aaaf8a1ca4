// SPDX-License-Identifier: Apache-2.0
// The scan forward on tensor cores. A block takes one head of one sequence from the first tile to the last,
// with the state in registers, so that nothing but inputs, output and the wanted states touches memory. In a
// tile, with E[t, s] the product of the decays s + 1 … t and H the state before it,
//   y[t] = sum over s <= t of (C[t] . B[s]) E[t, s] dt[s] x[s]  +  E[t, before] H . C[t]  +  D x[t].
// Of the first 8 warps, w has, in y, tokens 16 (w / 2) … and half w % 2 of the channels; the others, of which
// there are two for heads of 80, have their part in the state alone.

#include "tetrad/backend/cuda/mamba2/scan_kernels.cuh"

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/backend/cuda/mamba2/scan_mma.cuh"

namespace tetrad::cuda {
namespace {

template <int kHeadDim, int kState>
struct ForwardMemory {
  alignas(128) Bf16 x[2][SharedTile<kHeadDim>::size(kTile)];
  alignas(128) Bf16 b[2][SharedTile<kState>::size(kTile)];
  alignas(128) Bf16 c[SharedTile<kState>::size(kTile)];
  alignas(128) Bf16 state[SharedTile<kState>::size(kHeadDim)];
  alignas(128) Bf16 mix[2][SharedTile<kTile>::size(kTile)];  //!< as the sum of two BF16 values
  alignas(16) TileSteps steps[2];
};

/// Where a thread works.
struct ForwardPlace {
  int lane;
  int token;  //!< first of the warp's 16
  int half;   //!< which one of the channels
  int row;    //!< the lane's first row among the 16, the second is 8 below
  int pair;   //!< the lane's columns in a tile: this and the next

  explicit __device__ ForwardPlace(int thread)
      : lane(thread % kWarp),
        token(thread / kWarp / 2 * 16),
        half(thread / kWarp % 2),
        row(lane / 4),
        pair(lane % 4 * 2) {}
};

constexpr int kOutputWarps = kTile / 16 * 2;

/// 16 x 8 tiles side by side: of pairs of tokens, and of half of the channels.
using Strip = float[4][4];
template <int kHeadDim>
using OutputStrip = float[kHeadDim / 2 / 8][4];

/// Products of the warp's tokens with B, for half of the tokens up to them, and with the state.
template <int kHeadDim, int kState>
__device__ inline void multiply_keys(const ForwardPlace& place, const SharedTile<kState>& b,
                                     const SharedTile<kState>& c, const SharedTile<kState>& state,
                                     bool has_state, Strip& products, OutputStrip<kHeadDim>& y) {
  const int blocks = place.token / 16 + 1;  // tiles of the lower triangle, for each of two warps
#pragma unroll
  for (int n = 0; n < kState; n += 32) {
    std::uint32_t left[4];
    std::uint32_t right[4];
    std::uint32_t other[4];
    c.first(left, place.token, n);
    c.first(right, place.token, n + 16);
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
      if (tile >= blocks) continue;
      b.second(other, 8 * (place.half * blocks + tile), n);
      multiply_add(products[tile], left, other[0], other[1]);
      multiply_add(products[tile], right, other[2], other[3]);
    }
    if (!has_state) continue;
#pragma unroll
    for (int tile = 0; tile < kHeadDim / 2 / 8; ++tile) {
      state.second(other, kHeadDim / 2 * place.half + 8 * tile, n);
      multiply_add(y[tile], left, other[0], other[1]);
      multiply_add(y[tile], right, other[2], other[3]);
    }
  }
}

/// What y takes of each x, to 16 bits: as the sum of two BF16 values.
struct Mix {
  SharedTile<kTile> high, low;
};

/// mix[t, s] = products * E[t, s] * dt[s] where s <= t, and 0 elsewhere in the blocks of the lower triangle.
__device__ inline void store_mix(const ForwardPlace& place, const TileSteps& steps, const Strip& products,
                                 const Mix& mix) {
  const int blocks = place.token / 16 + 1;
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    if (tile >= blocks) continue;
    const int s = 8 * (place.half * blocks + tile) + place.pair;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = place.token + place.row + 8 * half;
      const LongLog log = steps.log[t];
      float values[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        values[i] =
            s + i <= t ? products[tile][2 * half + i] * decay_between(log, steps.log[s + i]) * steps.dt[s + i]
                       : 0;
      const std::uint32_t high = pack_bf16(values[0], values[1]);
      mix.high.pair(t, s) = high;
      mix.low.pair(t, s) = pack_bf16(values[0] - first_of(high), values[1] - second_of(high));
    }
  }
}

/// y = E[t, before] * y + mix . x + D * x.
template <int kHeadDim>
__device__ inline void finish_output(const ForwardPlace& place, const Mix& mix, const SharedTile<kHeadDim>& x,
                                     float d, OutputStrip<kHeadDim>& y) {
  constexpr int kTiles = kHeadDim / 2 / 8;
  const int channel = kHeadDim / 2 * place.half;
#pragma unroll
  for (int s = 0; s < kTile; s += 16) {
    if (s > place.token) continue;
    std::uint32_t high[4];
    std::uint32_t low[4];
    mix.high.first(high, place.token, s);
    mix.low.first(low, place.token, s);
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {
      std::uint32_t other[4];
      x.second_transposed(other, s, channel + 8 * tile);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (tile + i >= kTiles) continue;  // of the last load, half is used where tiles are odd
        multiply_add(y[tile + i], high, other[2 * i], other[2 * i + 1]);
        multiply_add(y[tile + i], low, other[2 * i], other[2 * i + 1]);
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t inputs =
          x.pair(place.token + place.row + 8 * half, channel + 8 * tile + place.pair);
      y[tile][2 * half] += d * first_of(inputs);
      y[tile][2 * half + 1] += d * second_of(inputs);
    }
}

template <int kHeadDim>
__device__ inline void store_output(const OutputStrip<kHeadDim>& y, Bf16* first, Bf16* second) {
  store_rows<0>(y, first, second);
  if constexpr (kHeadDim == 80)
    store_tile(y[4], first == nullptr ? nullptr : first + 32, second == nullptr ? nullptr : second + 32);
}

/// Heads of 80 have more threads, for which the registers of two blocks are too few.
template <int kHeadDim>
constexpr int kBlocksAtATime = kHeadDim == 64 ? 2 : 1;

template <int kHeadDim, int kState>
__global__ void __launch_bounds__(kScanThreads<kHeadDim>, kBlocksAtATime<kHeadDim>)
    forward_kernel(Mamba2Shape shape, ScanViews<Bf16> in, View<Bf16> y, float* chunk_states) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto& memory = *reinterpret_cast<ForwardMemory<kHeadDim, kState>*>(shared_bytes);
  const std::int64_t head = blockIdx.x % shape.heads;
  const std::int64_t group = head / (shape.heads / shape.groups);
  const std::int64_t batch = blockIdx.x / shape.heads;
  const bool is_first_warp = threadIdx.x < kWarp;
  const bool has_output =
      kScanThreads<kHeadDim> == kOutputWarps * kWarp || threadIdx.x < kOutputWarps * kWarp;
  const int tiles = static_cast<int>((shape.sequence + kTile - 1) / kTile);
  const std::int64_t row = batch * shape.sequence;
  const auto length_of = [&](int tile) {
    const std::int64_t left = shape.sequence - std::int64_t{tile} * kTile;
    return left < kTile ? static_cast<int>(left) : kTile;
  };
  const auto fetch = [&](int tile) {
    const std::int64_t first = row + std::int64_t{tile} * kTile;
    const int length = length_of(tile);
    SharedTile<kHeadDim>{memory.x[tile % 2], 0}.template copy_rows<kScanThreads<kHeadDim>, kTile>(
        in.x.row(first) + head * kHeadDim, in.x.stride, length);
    SharedTile<kState>{memory.b[tile % 2], 0}.template copy_rows<kScanThreads<kHeadDim>, kTile>(
        in.b.row(first) + group * kState, in.b.stride, length);
  };
  // C is read in the first half of a tile only, so that the second half is time enough for the next.
  const auto fetch_queries = [&](int tile) {
    SharedTile<kState>{memory.c, 0}.template copy_rows<kScanThreads<kHeadDim>, kTile>(
        in.c.row(row + std::int64_t{tile} * kTile) + group * kState, in.c.stride, length_of(tile));
    commit_copies();
  };

  const ScanSteps all_steps = steps_of(in);
  RawSteps raw;
  fetch(0);
  fetch_queries(0);
  if (is_first_warp) {
    raw.load(all_steps, row, 0, head, length_of(0));
    raw.compute(all_steps, head, memory.steps[0]);
  }
  StateShare<kState> state;
  state.set_zero();
  for (int tile = 0; tile < tiles; ++tile) {
    const int thread = hidden(static_cast<int>(threadIdx.x));
    const ForwardPlace place(thread);
    const SharedTile<kHeadDim> x{memory.x[tile % 2], place.lane};
    const SharedTile<kState> b{memory.b[tile % 2], place.lane};
    const SharedTile<kState> c{memory.c, place.lane};
    const SharedTile<kState> shared_state{memory.state, place.lane};
    const Mix mix{{memory.mix[0], place.lane}, {memory.mix[1], place.lane}};
    const TileSteps& steps = memory.steps[tile % 2];
    const bool is_last = tile + 1 == tiles;
    wait_for_copies<0>();
    __syncthreads();  // inputs, steps and state are there; nobody reads the buffers of the tile before
    if (!is_last) {
      fetch(tile + 1);
      const int time = (tile + 1) * kTile;
      if (is_first_warp) raw.load(all_steps, row + time, time, head, length_of(tile + 1));
    }
    if (chunk_states != nullptr && std::int64_t{tile} * kTile % shape.chunk == 0) {
      const std::int64_t chunks = (shape.sequence + shape.chunk - 1) / shape.chunk;
      const std::int64_t chunk = batch * chunks + std::int64_t{tile} * kTile / shape.chunk;
      state.store(thread, chunk_states + (chunk * shape.heads + head) * kHeadDim * kState);
    }

    OutputStrip<kHeadDim> output = {};
    if (has_output) {
      Strip products = {};
      multiply_keys<kHeadDim, kState>(place, b, c, shared_state, tile > 0, products, output);
      store_mix(place, steps, products, mix);
#pragma unroll
      for (auto& values : output)
#pragma unroll
        for (int i = 0; i < 4; ++i) values[i] *= steps.left[place.token + place.row + i / 2 * 8];
    }
    __syncthreads();  // mix is there; nobody reads C or the state any more
    if (!is_last) fetch_queries(tile + 1);
    if (has_output) {
      finish_output<kHeadDim>(place, mix, x, in.d[head], output);
      const int t = place.token + place.row;
      Bf16* out = y.row(row + std::int64_t{tile} * kTile + t) + head * kHeadDim + kHeadDim / 2 * place.half;
      store_output<kHeadDim>(output, t < length_of(tile) ? out : nullptr,
                             t + 8 < length_of(tile) ? out + 8 * y.stride : nullptr);
    }
    if (is_last) return;
    state.advance(thread, steps.total(), x, b, steps.weight);
    state.store(thread, shared_state);
    if (is_first_warp) raw.compute(all_steps, head, memory.steps[(tile + 1) % 2]);
  }
}

template <int kHeadDim, int kState>
void launch_forward(Device& device, const ScanForward& op) {
  constexpr std::size_t kBytes = sizeof(ForwardMemory<kHeadDim, kState>);
  launch_with_shared(device, op.shape.batch * op.shape.heads, kScanThreads<kHeadDim>, kBytes,
                     forward_kernel<kHeadDim, kState>, op.shape, views_of<Bf16>(op.in), view_as<Bf16>(op.y),
                     op.chunk_states);
}

bool fits(const Mamba2Shape& shape, const ScanInputs& in) {
  const bool whole_tiles = shape.chunk % kTile == 0 || shape.chunk >= shape.sequence;
  return in.x.dtype == DType::bf16 && has_tensor_core_scan(shape) && whole_tiles && is_wide(in.x) &&
         is_wide(in.b) && is_wide(in.c);
}

}  // namespace

bool fits_tensor_cores(const Device& device, const ScanForward& op) {
  return fits(op.shape, op.in) && is_wide(op.y) && is_wide(static_cast<const float*>(op.chunk_states)) &&
         device.properties().sharedMemPerBlockOptin >= with_sizes(op.shape, [](auto head_dim, auto state) {
           return sizeof(ForwardMemory<head_dim, state>);
         });
}

void scan_mma(Device& device, const ScanForward& op) {
  with_sizes(op.shape, [&](auto head_dim, auto state) { launch_forward<head_dim, state>(device, op); });
}

}  // namespace tetrad::cuda
