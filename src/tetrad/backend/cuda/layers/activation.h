// SPDX-License-Identifier: Apache-2.0
#pragma once
// ops/activation.h on CUDA.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/activation.h"

namespace tetrad::cuda {

void activation(Device& device, const ActivationForward& op);
void activation(Device& device, const ActivationBackward& op);

}  // namespace tetrad::cuda
