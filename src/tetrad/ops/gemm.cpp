// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/gemm.h"

#include "tetrad/core/error.h"

namespace tetrad {

float gemm_alpha(const GemmOperand& a, const GemmOperand& b) {
  const auto factor = [](const GemmOperand& operand) {
    return operand.quantized() == nullptr ? QuantizedTensor::Factor{} : operand.quantized()->alpha_factor();
  };
  const auto [numerator_a, denominator_a] = factor(a);
  const auto [numerator_b, denominator_b] = factor(b);
  return numerator_a * numerator_b / (denominator_a * denominator_b);
}

void check(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out, Accumulate accumulate) {
  TETRAD_CHECK(a.cols() == b.cols() && out.rows == a.rows() && out.cols == b.rows(),
               "gemm: [{}, {}] . [{}, {}]^T does not give [{}, {}]", a.rows(), a.cols(), b.rows(), b.cols(),
               out.rows, out.cols);
  TETRAD_CHECK(out.is_row_major() && (out.dtype == DType::f32 || out.dtype == DType::bf16),
               "gemm: the output must be row-major F32 or BF16");
  TETRAD_CHECK(accumulate == Accumulate::no || out.dtype == DType::f32,
               "gemm: only an F32 output can be accumulated into");
  for (const GemmOperand* operand : {&a, &b})
    TETRAD_CHECK(operand->dense() == nullptr ||
                     ((operand->dense()->dtype == DType::f32 || operand->dense()->dtype == DType::bf16) &&
                      (operand->dense()->row_stride == 1 || operand->dense()->col_stride == 1)),
                 "gemm: a dense operand must be F32 or BF16 and contiguous along one dimension");
}

}  // namespace tetrad
