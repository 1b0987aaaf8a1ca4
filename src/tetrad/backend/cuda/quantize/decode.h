// SPDX-License-Identifier: Apache-2.0
#pragma once
// Quantized tensors back to values: launches behind dequantize() and expand(), whose arguments they trust.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/ops/quantize.h"

namespace tetrad::cuda {

void decode_values(Device& device, const QuantizedTensor& tensor, const MutableMatrixView& out);
void decode_operand(Device& device, const QuantizedTensor& tensor, Bf16* out);

}  // namespace tetrad::cuda
