// SPDX-License-Identifier: Apache-2.0
#pragma once
// ops/quantize.h on CUDA: byte for byte what the CPU gives.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/ops/quantize.h"

namespace tetrad::cuda {

QuantStats quantize(Device& device, const MatrixView& x, const QuantSpec& spec,
                    const QuantizeOptions& options, QuantizedTensor& out);

/// Two uses of one matrix, as quantize() of each gives them: its rows and its columns, whose values are read
/// once for both where kernels for that exist: NVFP4 1x16 of BF16, the rows without a transform and,
/// unless both are packed, as an operand; FP8 1x128 of BF16, to nearest without a transform; no statistics
/// wanted.
void quantize_two(Device& device, const MatrixView& x, const QuantSpec& row_spec,
                  const QuantizeOptions& row_options, QuantizedTensor& row_out, const QuantSpec& col_spec,
                  const QuantizeOptions& col_options, QuantizedTensor& col_out);

void dequantize(Device& device, const QuantizedTensor& tensor, const MutableMatrixView& out);

/// The values that a product reads, code x block scale, exact in BF16, in the order of the tensor's codes:
/// [rows, cols] or [cols, rows]. NVFP4, MXFP4 and FP8 with one scale for the tensor, in packed form.
void expand(Device& device, const QuantizedTensor& tensor, Bf16* out);

}  // namespace tetrad::cuda
