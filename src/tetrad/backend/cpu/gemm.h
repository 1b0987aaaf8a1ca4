// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/backend/cpu/product_kernel.h"
#include "tetrad/core/threads.h"
#include "tetrad/ops/gemm.h"

namespace tetrad::cpu {

void gemm(Threads& threads, ProductKernel kernel, const GemmOperand& a, const GemmOperand& b,
          const MutableMatrixView& out, Accumulate accumulate);

/// For products with an `a` that takes the same kernel; others read b as it is.
void pack(Threads& threads, ProductKernel kernel, const GemmOperand& b, PackedOperand& out);

}  // namespace tetrad::cpu
