// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decoding rectangles of quantized or BF16 matrices to f32.

#include "tetrad/core/threads.h"
#include "tetrad/ops/quantize.h"

namespace tetrad::cpu {

/// A rectangle of a matrix [rows, cols]: `row_count` rows from `first_row`, and so on.
struct Rectangle {
  std::int64_t first_row, row_count, first_col, col_count;
};

/// How much of the value the decoder multiplies out.
enum class DecodeTo : std::uint8_t {
  operand,  //!< without what gemm_alpha() carries: exact in BF16 for NVFP4 and MXFP4
  value,    //!< everything
};

/// Decodes a rectangle. `out` is row-major [row_count, col_count] for row-major codes; for column-major codes
/// it is [col_count, row_count], i.e. in the order in which the codes lie. first_col and col_count are
/// multiples of 16.
void decode(const QuantizedTensor& tensor, const Rectangle& part, DecodeTo to, float* out,
            std::int64_t out_stride);

/// A whole tensor to f32 or BF16, [rows, cols] row-major, in parallel.
void dequantize(Threads& threads, const QuantizedTensor& tensor, const MutableMatrixView& out);

}  // namespace tetrad::cpu
