// SPDX-License-Identifier: Apache-2.0
// States, or their gradients, passed along sequences on tensor cores: what the backward pass needs around
// every tile. A block takes one head over a run of tiles, with the state in registers.

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/mamba2/scan_kernels.cuh"
#include "tetrad/backend/cuda/mamba2/scan_mma.cuh"

namespace tetrad::cuda {
namespace {

template <int kHeadDim, int kState>
struct StatesMemory {
  alignas(128) Bf16 rows[2][SharedTile<kHeadDim>::size(kTile)];
  alignas(128) Bf16 keys[2][SharedTile<kState>::size(kTile)];
  alignas(16) TileSteps steps[2];
};

/// Forwards: state = total decay * state + sum of weight * x outer B, written before each tile.
/// Backwards: gradient = total decay * gradient + sum of left * dy outer C, written after each tile.
/// Both are written in BF16, as which the products take them.
template <bool kForwards>
struct Passing {
  View<const Bf16> rows;  //!< x or dy
  View<const Bf16> keys;  //!< B or C
  ScanSteps steps;
  std::int64_t runs;   //!< in a sequence
  const float* start;  //!< [batch, runs, heads, head_dim, state]; null: zeros
  Bf16* out;           //!< [batch, tiles, heads, head_dim, state]
};

template <int kState>
__device__ inline void store_state(int thread, const StateShare<kState>& state, Bf16* out) {
  Bf16* first = out + (StateShare<kState>::first_row(thread) + thread % kWarp / 4) * kState +
                StateShare<kState>::first_col(thread);
  store_rows<0>(state.of, first, first + 8 * kState);
  if constexpr (kState == 128) store_rows<4>(state.of, first + 32, first + 8 * kState + 32);
}

template <int kHeadDim, int kState, bool kForwards>
__global__ void __launch_bounds__(kScanThreads<kHeadDim>, 2)
    pass_states_kernel(Mamba2Shape shape, Passing<kForwards> op) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto& memory = *reinterpret_cast<StatesMemory<kHeadDim, kState>*>(shared_bytes);
  const std::int64_t head = blockIdx.x % shape.heads;
  const std::int64_t group = head / (shape.heads / shape.groups);
  const std::int64_t run = blockIdx.x / shape.heads % op.runs;
  const std::int64_t batch = blockIdx.x / shape.heads / op.runs;
  const bool is_first_warp = threadIdx.x < kWarp;
  const int tiles = static_cast<int>((shape.sequence + kTile - 1) / kTile);
  const int tiles_of_run = op.runs == 1 ? tiles : static_cast<int>(shape.chunk / kTile);
  const int first_tile = static_cast<int>(run) * tiles_of_run;
  const int count = tiles - first_tile < tiles_of_run ? tiles - first_tile : tiles_of_run;
  const auto tile_of = [&](int i) { return first_tile + (kForwards ? i : count - 1 - i); };
  const auto row_of = [&](int i) { return batch * shape.sequence + std::int64_t{tile_of(i)} * kTile; };
  const auto length_of = [&](int i) {
    const std::int64_t left = shape.sequence - std::int64_t{tile_of(i)} * kTile;
    return left < kTile ? static_cast<int>(left) : kTile;
  };
  const auto fetch = [&](int i) {
    SharedTile<kHeadDim>{memory.rows[i % 2], 0}.template copy_rows<kScanThreads<kHeadDim>, kTile>(
        op.rows.row(row_of(i)) + head * kHeadDim, op.rows.stride, length_of(i));
    SharedTile<kState>{memory.keys[i % 2], 0}.template copy_rows<kScanThreads<kHeadDim>, kTile>(
        op.keys.row(row_of(i)) + group * kState, op.keys.stride, length_of(i));
    commit_copies();
  };

  RawSteps raw;
  fetch(0);
  if (is_first_warp) {
    raw.load(op.steps, row_of(0), tile_of(0) * kTile, head, length_of(0));
    raw.compute(op.steps, head, memory.steps[0]);
  }
  StateShare<kState> state;
  state.set_zero();
  constexpr std::int64_t kSize = std::int64_t{kHeadDim} * kState;
  if (op.start != nullptr)
    state.load(static_cast<int>(threadIdx.x),
               op.start + ((batch * op.runs + run) * shape.heads + head) * kSize);
  for (int i = 0; i < count; ++i) {
    const int thread = hidden(static_cast<int>(threadIdx.x));
    const bool is_last = i + 1 == count;
    wait_for_copies<0>();
    __syncthreads();  // inputs and steps are there; nobody reads the buffers of the tile before
    if (!is_last) {
      fetch(i + 1);
      if (is_first_warp) raw.load(op.steps, row_of(i + 1), tile_of(i + 1) * kTile, head, length_of(i + 1));
    }
    store_state(thread, state, op.out + ((batch * tiles + tile_of(i)) * shape.heads + head) * kSize);
    if (is_last) return;
    const TileSteps& steps = memory.steps[i % 2];
    state.advance(thread, steps.total(), SharedTile<kHeadDim>{memory.rows[i % 2], thread % kWarp},
                  {memory.keys[i % 2], thread % kWarp}, kForwards ? steps.weight : steps.left);
    if (is_first_warp) raw.compute(op.steps, head, memory.steps[(i + 1) % 2]);
  }
}

template <int kHeadDim, int kState, bool kForwards>
void launch_passing(Device& device, const Mamba2Shape& shape, const Passing<kForwards>& op) {
  constexpr std::size_t kBytes = sizeof(StatesMemory<kHeadDim, kState>);
  launch_with_shared(device, shape.batch * op.runs * shape.heads, kScanThreads<kHeadDim>, kBytes,
                     pass_states_kernel<kHeadDim, kState, kForwards>, shape, op);
}

}  // namespace

void scan_mma_tile_states(Device& device, const ScanBackward& op, Bf16* states) {
  const Passing<true> passing{view_as<Bf16>(op.in.x), view_as<Bf16>(op.in.b), steps_of(views_of<Bf16>(op.in)),
                              op.shape.chunks(),      op.chunk_states,        states};
  with_sizes(op.shape,
             [&](auto head_dim, auto state) { launch_passing<head_dim, state>(device, op.shape, passing); });
}

void scan_mma_state_gradients(Device& device, const ScanBackward& op, Bf16* dstates) {
  const Passing<false> passing{
      view_as<Bf16>(op.dy), view_as<Bf16>(op.in.c), steps_of(views_of<Bf16>(op.in)), 1, nullptr, dstates};
  with_sizes(op.shape,
             [&](auto head_dim, auto state) { launch_passing<head_dim, state>(device, op.shape, passing); });
}

}  // namespace tetrad::cuda
