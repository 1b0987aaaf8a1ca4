// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/gemm.h"

namespace tetrad::cpu {

/// gemm() in f32, with OpenBLAS. The arguments have been checked.
void gemm_f32(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
              Accumulate accumulate);

}  // namespace tetrad::cpu
