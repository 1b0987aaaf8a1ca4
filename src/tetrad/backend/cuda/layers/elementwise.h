// SPDX-License-Identifier: Apache-2.0
#pragma once
// ops/elementwise.h on CUDA.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/elementwise.h"

namespace tetrad::cuda {

void add(Device& device, const Add& op);
void cast(Device& device, const Cast& op);

}  // namespace tetrad::cuda
