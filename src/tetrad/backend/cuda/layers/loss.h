// SPDX-License-Identifier: Apache-2.0
#pragma once
// ops/loss.h on CUDA.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/loss.h"

namespace tetrad::cuda {

void cross_entropy(Device& device, const CrossEntropy& op);

}  // namespace tetrad::cuda
