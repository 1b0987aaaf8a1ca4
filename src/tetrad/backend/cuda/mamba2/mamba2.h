// SPDX-License-Identifier: Apache-2.0
#pragma once
// ops/mamba2.h on CUDA.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/mamba2.h"

namespace tetrad::cuda {

void causal_conv(Device& device, const CausalConvForward& op);
void causal_conv(Device& device, const CausalConvBackward& op);
void scan(Device& device, const ScanForward& op);
void scan(Device& device, const ScanBackward& op);
void mamba2_step(Device& device, const Mamba2Step& op);

}  // namespace tetrad::cuda
