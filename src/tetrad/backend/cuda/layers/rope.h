// SPDX-License-Identifier: Apache-2.0
#pragma once
// ops/rope.h on CUDA.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/rope.h"

namespace tetrad::cuda {

void rope(Device& device, const Rope& op);

}  // namespace tetrad::cuda
