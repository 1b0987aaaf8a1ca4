#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/gemm.h"

namespace tetrad::cpu {

/// gemm() in f32, with OpenBLAS. The arguments have been checked.
void gemm_f32(Threads& threads, const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
              Accumulate accumulate);

}  // namespace tetrad::cpu
