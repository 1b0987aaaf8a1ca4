// SPDX-License-Identifier: Apache-2.0
#pragma once
// The scan on tensor cores: BF16 activations, head_dim 64, state 64 or 128, aligned views, chunks of whole
// tiles.

#include "tetrad/backend/cuda/mamba2/scan.cuh"

namespace tetrad::cuda {

/// Whether the tensor cores can take it on this device; otherwise there is scan_recurrence.h.
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

}  // namespace tetrad::cuda
