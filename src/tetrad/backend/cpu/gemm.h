// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/gemm.h"

namespace tetrad::cpu {

void gemm(Threads& threads, const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
          Accumulate accumulate);

}  // namespace tetrad::cpu
