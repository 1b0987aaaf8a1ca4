// SPDX-License-Identifier: Apache-2.0
#pragma once
// NVFP4 operands as Blackwell's matrix units take them.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/backend/cuda/gemm/scaled_operand.h"
#include "tetrad/ops/gemm.h"

namespace tetrad::cuda {

/// Of operands that are both native. What has to be rearranged is written to Device::operand_a and operand_b.
ScaledOperands nvfp4_operands(Device& device, const GemmOperand& a, const GemmOperand& b);

}  // namespace tetrad::cuda
