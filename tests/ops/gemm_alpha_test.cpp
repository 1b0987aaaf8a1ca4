// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "tetrad/numerics/nvfp4.h"
#include "tetrad/ops/gemm.h"

namespace tetrad {
namespace {

QuantizedTensor with_amax(float amax, Scaling scaling = Scaling::standard) {
  QuantizedTensor tensor;
  tensor.spec.scaling = scaling;
  tensor.amax = amax;
  return tensor;
}

TEST(GemmAlpha, IsTheProductOfTheAmaxesOverTheRanges) {
  const QuantizedTensor a = with_amax(3.7f);
  const QuantizedTensor b = with_amax(0.02f);
  EXPECT_EQ(gemm_alpha(a, b), 3.7f * 0.02f / (2688.0f * 2688.0f));
  EXPECT_EQ(gemm_alpha(a, with_amax(0.02f, Scaling::search)), 3.7f * 0.02f / (2688.0f * 1536.0f));
  EXPECT_EQ(gemm_alpha(a, MatrixView{}), 3.7f / 2688.0f);
  EXPECT_EQ(gemm_alpha(MatrixView{}, MatrixView{}), 1.0f);
}

TEST(GemmAlpha, AgreesWithDecodingWhereTheTensorScaleWasClamped) {
  const float tiny = 1e-37f;  // 2688 / amax overflows, so decoding multiplies by 1 / FLT_MAX
  ASSERT_EQ(nvfp4::tensor_scale(tiny).encode, std::numeric_limits<float>::max());
  EXPECT_NEAR(gemm_alpha(with_amax(tiny), MatrixView{}) / nvfp4::tensor_scale(tiny).decode, 1.0f, 1e-6f);
}

TEST(GemmAlpha, OfATransposedOperandSwapsItsExtentsAndNothingElse) {
  QuantizedTensor tensor = with_amax(1.0f);
  tensor.rows = 32;
  tensor.cols = 64;
  const GemmOperand operand = GemmOperand(tensor).transposed();
  EXPECT_EQ(operand.rows(), 64);
  EXPECT_EQ(operand.cols(), 32);
  EXPECT_EQ(operand.transposed().rows(), 32);
  EXPECT_EQ(gemm_alpha(operand, operand), gemm_alpha(tensor, tensor));
}

}  // namespace
}  // namespace tetrad
