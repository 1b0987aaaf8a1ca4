// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradients of the scan from the states around its tiles, in f32: for shapes and types that the tensor
// cores do not take.

#include "tetrad/backend/cuda/mamba2/scan.cuh"

namespace tetrad::cuda {

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
