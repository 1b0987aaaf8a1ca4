// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products on tensor cores, through cuBLASLt: quantized operands as the BF16 values code x block scale, which
// are exact.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/gemm.h"

namespace tetrad::cuda {

void gemm(Device& device, const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
          Accumulate accumulate);

}  // namespace tetrad::cuda
