// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operands of a product as the f32 kernel reads them.

#include <cstdint>

#include "tetrad/backend/cpu/decode.h"
#include "tetrad/ops/gemm.h"

namespace tetrad::cpu {

/// Packs a part of the operand [rows, K] as strips of `strip` rows (4, 8 or 16), [depth, strip], where the
/// depth is 2 * packed_pairs() and missing rows and columns are zeros. Elements are those of pack_bf16()
/// where that can pack the operand, else decoded to f32. first_row and first_col are multiples of 16.
void pack_f32(const GemmOperand& operand, const Rectangle& part, std::int64_t strip, float* out);

}  // namespace tetrad::cpu
