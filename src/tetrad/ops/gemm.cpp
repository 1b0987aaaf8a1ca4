#include "tetrad/ops/gemm.h"

namespace tetrad {

float gemm_alpha(const GemmOperand& a, const GemmOperand& b) {
  const auto factor = [](const GemmOperand& operand) {
    return operand.quantized() == nullptr ? QuantizedTensor::Factor{} : operand.quantized()->alpha_factor();
  };
  const auto [numerator_a, denominator_a] = factor(a);
  const auto [numerator_b, denominator_b] = factor(b);
  return numerator_a * numerator_b / (denominator_a * denominator_b);
}

}  // namespace tetrad
