// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operands of a product as the BF16 kernel reads them.

#include <cstdint>

#include "tetrad/backend/cpu/decode.h"
#include "tetrad/backend/cpu/kernel_bf16.h"
#include "tetrad/numerics/fp8.h"
#include "tetrad/ops/gemm.h"

namespace tetrad::cpu {

/// Depth over which the elements of a packed row may have a common factor, see slice_scales().
inline constexpr std::int64_t kScaledDepth = fp8::kBlock;

/// Whether an operand can be packed: BF16 itself; codes with a scale that leaves them BF16 values (NVFP4,
/// MXFP4) or that is left to alpha (FP8 with one scale for the tensor); and FP8 whose scales, which would
/// not, are the same over each kScaledDepth of the depth.
bool is_packable(const GemmOperand& operand);

/// Whether the packed elements are still to be multiplied by slice_scales(): FP8 in blocks along
/// the depth.
bool has_slice_scales(const GemmOperand& operand);

/// What the packed elements of `count` rows from `first_row` are multiplied by, at depths [k, k +
/// kScaledDepth).
void slice_scales(const GemmOperand& operand, std::int64_t first_row, std::int64_t count, std::int64_t k,
                  float* out);

/// Depth of a packed operand, in pairs: whole chunks of 16 elements.
constexpr std::int64_t packed_pairs(std::int64_t depth) { return (depth + 15) / 16 * 8; }

/// Packs a part of the operand [rows, K] as strips, see kernel_bf16.h; missing rows and columns are zeros.
/// first_row and first_col are multiples of 16.
void pack_bf16(const GemmOperand& operand, const Rectangle& part, std::uint32_t* out);

}  // namespace tetrad::cpu
