#pragma once
// The scan on tensor cores: BF16 activations, head_dim 64, state 64 or 128, aligned views, chunks of whole
// tiles.

#include "tetrad/backend/cuda/scan.cuh"

namespace tetrad::cuda {

/// Whether the tensor cores can take it on this device; otherwise there is scan_recurrence.h.
bool fits_tensor_cores(const Device& device, const ScanForward& op);

void scan_mma(Device& device, const ScanForward& op);

}  // namespace tetrad::cuda
