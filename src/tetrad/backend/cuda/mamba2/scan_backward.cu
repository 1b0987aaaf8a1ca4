// SPDX-License-Identifier: Apache-2.0
// The selective scan, backward: the states before all tiles, the gradients of those after them, and from
// these, for every tile by itself, all gradients.

#include "tetrad/backend/cuda/common/column_sums.cuh"
#include "tetrad/backend/cuda/mamba2/mamba2.h"
#include "tetrad/backend/cuda/mamba2/scan.cuh"
#include "tetrad/backend/cuda/mamba2/scan_kernels.cuh"

namespace tetrad::cuda {
namespace {

/// Column sum * heads + head of the parameters' sums.
struct ParameterTarget {
  float *ddt_bias, *da_log, *dd;
  std::int64_t heads;
  __device__ float* operator()(std::int64_t col) const {
    float* out = col < heads ? ddt_bias : col < 2 * heads ? da_log : dd;
    return out + col % heads;
  }
};

void differentiate(Device& device, const ScanBackward& op, const Tiles& tiles, float* sums) {
  const Mamba2Shape& shape = op.shape;
  const std::int64_t steps_size = op.in.dt.rows * shape.heads;
  const std::int64_t head_tiles = shape.batch * tiles.count * shape.heads;
  const std::int64_t states_size = head_tiles * shape.head_dim * shape.state;
  const bool has_states = tiles.per_chunk == 1;  // the tiles are the chunks
  ScratchLayout layout;
  const std::int64_t dt = layout.add(steps_size);
  const std::int64_t decay = layout.add(steps_size);
  const std::int64_t left = layout.add(steps_size);
  const std::int64_t weight = layout.add(steps_size);
  const std::int64_t states = layout.add(has_states ? 0 : states_size);
  const std::int64_t dstates = layout.add(states_size);
  const std::int64_t dproducts = layout.add(head_tiles * tiles.length * tiles.length);
  float* scratch = layout.allocate(device);
  const Steps steps{scratch + dt, scratch + decay};
  scan_steps(device, shape, op.in, steps);
  if (!has_states) scan_tile_states(device, shape, op.in, steps, tiles, op.chunk_states, scratch + states);
  scan_state_gradients(device, shape, op.in, steps, tiles, op.dy, scratch + dstates);
  scan_gradients(device, op, tiles,
                 {steps, has_states ? op.chunk_states : scratch + states, scratch + dstates, scratch + left,
                  scratch + weight, scratch + dproducts, sums});
}

/// The same on tensor cores.
void differentiate_mma(Device& device, const ScanBackward& op, std::int64_t tiles, float* sums) {
  const Mamba2Shape& shape = op.shape;
  const std::int64_t states_size = shape.batch * tiles * shape.inner() * shape.state;
  ScratchLayout layout;
  const std::int64_t states_place = layout.add(ceil_div(states_size, 2));  // two BF16 in the place of an f32
  const std::int64_t dstates_place = layout.add(ceil_div(states_size, 2));
  float* scratch = layout.allocate(device);
  auto* states = reinterpret_cast<Bf16*>(scratch + states_place);
  auto* dstates = reinterpret_cast<Bf16*>(scratch + dstates_place);
  scan_mma_tile_states(device, op, states);
  scan_mma_state_gradients(device, op, dstates);
  scan_mma_gradients(device, op, states, dstates, sums);
}

}  // namespace

void scan(Device& device, const ScanBackward& op) {
  check(op);
  const bool on_tensor_cores = fits_tensor_cores(device, op);
  const Tiles tiles = tiles_of(op.shape);
  const std::int64_t tile_count = on_tensor_cores ? ceil_div(op.shape.sequence, kTile) : tiles.count;
  const std::int64_t rows = op.shape.batch * tile_count;
  const std::int64_t heads = op.shape.heads;
  float* sums = device.scratch<float>(Device::partial_sums, rows * 3 * heads);
  if (on_tensor_cores)
    differentiate_mma(device, op, tile_count, sums);
  else
    differentiate(device, op, tiles, sums);
  add_columns(device, sums, rows, 3 * heads, ParameterTarget{op.ddt_bias, op.da_log, op.dd, heads});
}

}  // namespace tetrad::cuda
