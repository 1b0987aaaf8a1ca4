// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/gemm.h"

#include "tetrad/backend/cpu/gemm_bf16.h"
#include "tetrad/backend/cpu/gemm_f32.h"

namespace tetrad::cpu {
void gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out, Accumulate accumulate) {
  check(a, b, out, accumulate);
  if (is_for_gemm_bf16(a, b))
    gemm_bf16(a, b, out, accumulate);
  else
    gemm_f32(a, b, out, accumulate);
}

}  // namespace tetrad::cpu
