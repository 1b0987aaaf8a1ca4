// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/gemm.h"

namespace tetrad::cpu {

void gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out, Accumulate accumulate);

}  // namespace tetrad::cpu
