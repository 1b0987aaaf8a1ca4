#pragma once
// ops/quantize.h on CUDA: byte for byte what the CPU gives.

#include "tetrad/backend/cuda/device.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/ops/quantize.h"

namespace tetrad::cuda {

QuantStats quantize(Device& device, const MatrixView& x, const QuantSpec& spec,
                    const QuantizeOptions& options, QuantizedTensor& out);

void dequantize(Device& device, const QuantizedTensor& tensor, const MutableMatrixView& out);

/// The values that a product reads, code x block scale, exact in BF16, in the order of the tensor's codes:
/// [rows, cols] or [cols, rows]. NVFP4 and MXFP4 in packed form.
void expand(Device& device, const QuantizedTensor& tensor, Bf16* out);

}  // namespace tetrad::cuda
