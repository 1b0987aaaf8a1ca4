#pragma once
// Operands of a product as the BF16 kernel reads them.

#include <cstdint>

#include "tetrad/backend/cpu/bf16_kernel.h"
#include "tetrad/backend/cpu/decode.h"
#include "tetrad/ops/gemm.h"

namespace tetrad::cpu {

/// Whether every element that the operand can hold is a BF16 value: BF16 itself, and codes with a scale that
/// leaves them one (NVFP4, MXFP4) or that is left to alpha (FP8 with one scale for the tensor).
bool is_exact_in_bf16(const GemmOperand& operand);

/// Depth of a packed operand, in pairs: whole chunks of 16 elements.
constexpr std::int64_t packed_pairs(std::int64_t depth) { return (depth + 15) / 16 * 8; }

/// Words of a packed operand.
constexpr std::int64_t packed_words(std::int64_t rows, std::int64_t depth) {
  return (rows + kStrip - 1) / kStrip * kStrip * packed_pairs(depth);
}

/// Packs a part of the operand [rows, K] as strips, see bf16_kernel.h; missing rows and columns are zeros.
/// first_row and first_col are multiples of 16.
void pack_bf16(const GemmOperand& operand, const Rectangle& part, std::uint32_t* out);

}  // namespace tetrad::cpu
