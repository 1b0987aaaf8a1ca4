// SPDX-License-Identifier: Apache-2.0
// The selective scan, forward.

#include "tetrad/backend/cuda/mamba2/mamba2.h"
#include "tetrad/backend/cuda/mamba2/scan.cuh"
#include "tetrad/backend/cuda/mamba2/scan_kernels.cuh"

namespace tetrad::cuda {

void scan(Device& device, const ScanForward& op) {
  check(op);
  if (fits_tensor_cores(device, op)) {
    scan_mma(device, op);
    return;
  }
  const std::int64_t steps_size = op.in.dt.rows * op.shape.heads;
  ScratchLayout layout;
  const std::int64_t dt = layout.add(steps_size);
  const std::int64_t decay = layout.add(steps_size);
  float* scratch = layout.allocate(device);
  const Steps steps{scratch + dt, scratch + decay};
  scan_steps(device, op.shape, op.in, steps);
  scan_recurrence(device, op.shape, op.in, steps, chunks_of(op.shape), op.chunk_states, op.y);
}

}  // namespace tetrad::cuda
