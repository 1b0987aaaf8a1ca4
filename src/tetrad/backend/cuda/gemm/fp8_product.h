// SPDX-License-Identifier: Apache-2.0
#pragma once
// FP8 products with block scales on matrix units that cuBLASLt has no such products for.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/backend/cuda/gemm/scaled_operand.h"
#include "tetrad/core/matrix.h"

namespace tetrad::cuda {

/// out = alpha a . b^T + beta out, from fp8_operands(), on any device of compute capability 8.9 or more.
/// alpha and beta are on the device.
void multiply_fp8(Device& device, const ScaledOperands& operands, const MutableMatrixView& out,
                  const float* alpha, const float* beta);

}  // namespace tetrad::cuda
