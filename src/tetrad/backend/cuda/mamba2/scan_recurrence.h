// SPDX-License-Identifier: Apache-2.0
#pragma once
// The scan as its recurrence says, token by token in f32, one warp for each channel: for shapes and types
// that the tensor cores do not take.

#include "tetrad/backend/cuda/mamba2/scan.cuh"

namespace tetrad::cuda {

/// Time steps and decays.
void scan_steps(Device& device, const Mamba2Shape& shape, const ScanInputs& in, const Steps& steps);

/// The whole sequence: `states`, if given, gets the state before each tile, [batch, tiles, heads, head_dim,
/// state], and `y` the output.
void scan_recurrence(Device& device, const Mamba2Shape& shape, const ScanInputs& in, const Steps& steps,
                     const Tiles& tiles, float* states, const MutableMatrixView& y);

/// The states before all tiles from those before all chunks.
void scan_tile_states(Device& device, const Mamba2Shape& shape, const ScanInputs& in, const Steps& steps,
                      const Tiles& tiles, const float* chunk_states, float* states);

/// The gradients of the states after all tiles: [batch, tiles, heads, head_dim, state].
void scan_state_gradients(Device& device, const Mamba2Shape& shape, const ScanInputs& in, const Steps& steps,
                          const Tiles& tiles, const MatrixView& dy, float* dstates);

}  // namespace tetrad::cuda
