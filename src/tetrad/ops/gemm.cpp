// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/gemm.h"

#include "tetrad/core/error.h"

namespace tetrad {

namespace {

using Factor = QuantizedTensor::Factor;

Factor factor_of(const GemmOperand& operand) {
  return operand.quantized() == nullptr ? Factor{} : operand.quantized()->alpha_factor();
}

float alpha_of(const Factor& a, const Factor& b) {
  return a.numerator * b.numerator / (a.denominator * b.denominator);
}

bool is_stack(const GemmOperand& operand) {
  return operand.quantized() != nullptr && !operand.quantized()->stack.empty();
}

}  // namespace

float gemm_alpha(const GemmOperand& a, const GemmOperand& b) { return alpha_of(factor_of(a), factor_of(b)); }

std::vector<float> gemm_alphas(const GemmOperand& a, const GemmOperand& b) {
  std::vector<float> alphas;
  if (!is_stack(a)) return alphas;
  const Factor factor_of_b = factor_of(b);
  for (const QuantizedTensor::Stacked& tensor : a.quantized()->stack)
    alphas.insert(alphas.end(), static_cast<std::size_t>(tensor.rows),
                  alpha_of(a.quantized()->alpha_factor(tensor.amax), factor_of_b));
  return alphas;
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
  TETRAD_CHECK(!is_stack(b) && !(is_stack(a) && a.is_transposed()),
               "gemm: only the first operand can be a stack of tensors, and not transposed");
}

}  // namespace tetrad
