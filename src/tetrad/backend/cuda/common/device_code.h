// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether this program has code for the device that it runs on.

#include <cuda_runtime.h>

namespace tetrad::cuda {

/// cudaSuccess, or why the kernels of this program cannot run on the current device.
cudaError_t look_for_device_code();

}  // namespace tetrad::cuda
