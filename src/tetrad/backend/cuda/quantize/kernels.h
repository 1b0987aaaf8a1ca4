// SPDX-License-Identifier: Apache-2.0
#pragma once
// The passes of quantize(), each a launch on the device's stream. Which kernels serve a problem is decided in
// quantize.cpp.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/backend/cuda/quantize/problem.h"

namespace tetrad::cuda {

/// Any problem: block_amax and state are raised from zero.
void find_amax(Device& device, const QuantProblem& problem);
/// Where scales depend on values: from block_amax to `chosen`.
void find_scales(Device& device, const QuantProblem& problem);
void encode(Device& device, const QuantProblem& problem);
/// Fills kQuantParts parts, to be merged in order.
inline constexpr std::int64_t kQuantParts = 528;
void measure(Device& device, const QuantProblem& problem, bool sampled, QuantPart* parts);

/// The tensor's amax alone, without a transform: `problem` in any layout.
void find_plain_amax(Device& device, const QuantProblem& problem);

/// NVFP4 1x16 of BF16 rows, RHT 16 or none.
bool suits_nvfp4_rows(const QuantProblem& problem);
void find_nvfp4_row_amax(Device& device, const QuantProblem& problem);
void encode_nvfp4_rows(Device& device, const QuantProblem& problem);

/// The same of a BF16 matrix that lies transposed, into column-major results.
bool suits_nvfp4_columns(const QuantProblem& problem);
void find_nvfp4_column_amax(Device& device, const QuantProblem& problem);
void encode_nvfp4_columns(Device& device, const QuantProblem& problem);

/// MS-EDEN after transforms of 128: BF16 rows, or a BF16 matrix that lies transposed into column-major
/// results.
bool suits_nvfp4_eden(const QuantProblem& problem);
void find_nvfp4_eden_amax(Device& device, const QuantProblem& problem);
void encode_nvfp4_eden(Device& device, const QuantProblem& problem);

/// NVFP4 16x16, to nearest, as an operand that lies as the input does, or packed rows of rows.
bool suits_nvfp4_2d(const QuantProblem& problem);
void encode_nvfp4_2d(Device& device, const QuantProblem& problem);

/// Rows of a matrix and its columns, with its values read once for both: rows into an operand, or both
/// packed.
bool suit_nvfp4_rows_and_columns(const QuantProblem& row, const QuantProblem& column);
void find_nvfp4_row_and_column_amax(Device& device, const QuantProblem& row, const QuantProblem& column);
void encode_nvfp4_rows_and_columns(Device& device, const QuantProblem& row, const QuantProblem& column);

/// What is left to do once codes have been written by kernels that found the tensor's amax on their way. A
/// state that is the device's flag is brought back to zero; two problems share one.
void finalize(Device& device, const QuantProblem& problem);
void finalize(Device& device, const QuantProblem& first, const QuantProblem& second);

/// FP8 in one pass over the values, with nothing left to do (fp8_tiles.cuh): 1x128 of BF16, also rows and
/// columns of one matrix together, and 128x128 as the input lies.
bool suits_fp8_tiles(const QuantProblem& problem);
void encode_fp8_tiles(Device& device, const QuantProblem& problem);
bool suit_fp8_tiles(const QuantProblem& row, const QuantProblem& column);
void encode_fp8_tiles(Device& device, const QuantProblem& row, const QuantProblem& column);

/// MXFP4 1x32 in one pass, with nothing left to do: rows without a transform, and columns of a matrix that
/// lies transposed, into column-major results, without one or, of BF16, with RHT 16 or 32.
bool suits_mxfp4(const QuantProblem& problem);
void encode_mxfp4(Device& device, const QuantProblem& problem);

}  // namespace tetrad::cuda
