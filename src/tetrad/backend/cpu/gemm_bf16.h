// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/gemm.h"

namespace tetrad::cpu {

/// Whether gemm_bf16() serves these operands: both can be packed as BF16, and the build has the kernel.
bool is_for_gemm_bf16(const GemmOperand& a, const GemmOperand& b);

/// gemm() on BF16 dot products. The arguments have been checked.
void gemm_bf16(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
               Accumulate accumulate);

}  // namespace tetrad::cpu
