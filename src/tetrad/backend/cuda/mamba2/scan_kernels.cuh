// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of the scan: on tensor cores (BF16 activations, head_dim 64 or 80, state 64 or 128, aligned
// views, chunks of whole tiles), and in f32 for every other shape and type.

#include "tetrad/backend/cuda/mamba2/scan.cuh"

namespace tetrad::cuda {

/// Whether the tensor cores can take it on this device.
bool fits_tensor_cores(const Device& device, const ScanForward& op);
bool fits_tensor_cores(const Device& device, const ScanBackward& op);

void scan_mma(Device& device, const ScanForward& op);

// The parts of the backward pass. Tiles are of kTile tokens, so that a sequence has
// ceil(sequence / kTile) of them and each lies in one chunk.

/// The states before all tiles, [batch, tiles, heads, head_dim, state], from those before all chunks; in
/// BF16, as which the products take them.
void scan_mma_tile_states(Device& device, const ScanBackward& op, Bf16* states);

/// The gradients of the states after all tiles, in the same order.
void scan_mma_state_gradients(Device& device, const ScanBackward& op, Bf16* dstates);

/// From these: writes dx, db, dc and ddt, and sums[batch, tiles, 3, heads], the shares of dt_bias, A_log, D.
void scan_mma_gradients(Device& device, const ScanBackward& op, const Bf16* states, const Bf16* dstates,
                        float* sums);

// In f32: first the recurrence, token by token, one warp for each channel.

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

// Then the gradients from the states around the tiles.

/// What a backward pass keeps between its kernels, for each token and head or each (sequence, tile, head).
struct ScanGradientScratch {
  Steps steps;
  const float* states;   //!< [batch, tiles, heads, head_dim, state] before each tile
  const float* dstates;  //!< the same, after each tile
  float* left;           //!< [batch * sequence, heads] what is left of the state before the tile
  float* weight;         //!< [batch * sequence, heads] what the state after the tile takes of x outer B
  float* dproducts;      //!< [batch, tiles, heads, length, length] gradients of C . B^T
  float* sums;           //!< [batch, tiles, 3, heads] shares of dt_bias, A_log and D
};

/// Writes dx, db, dc and ddt, and the scratch from `left` on.
void scan_gradients(Device& device, const ScanBackward& op, const Tiles& tiles,
                    const ScanGradientScratch& scratch);

}  // namespace tetrad::cuda
