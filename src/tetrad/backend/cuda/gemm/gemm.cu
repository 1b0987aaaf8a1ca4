// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/gemm/gemm.h"

#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/backend/cuda/gemm/blas.h"
#include "tetrad/backend/cuda/gemm/fp8_product.h"
#include "tetrad/backend/cuda/gemm/native.h"
#include "tetrad/backend/cuda/gemm/scaled_operand.h"
#include "tetrad/backend/cuda/layers/layers.h"
#include "tetrad/backend/cuda/quantize/quantize.h"
#include "tetrad/core/tensor.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad::cuda {
namespace {

/// alpha = amax_a * amax_b / (range_a * range_b), as ops/gemm.h defines it; an operand without a tensor scale
/// is 1 / 1, and FP8 with one scale for the tensor scale / 1.
struct AlphaFactor {
  const float* amax = nullptr;
  Scaling scaling = Scaling::standard;
  const float* scale = nullptr;
  bool is_one() const { return amax == nullptr && scale == nullptr; }
};

__device__ inline QuantizedTensor::Factor factor_of(const AlphaFactor& operand) {
  if (operand.scale != nullptr) return {*operand.scale, 1.0f};
  if (operand.amax == nullptr) return {1.0f, 1.0f};
  return {nvfp4::alpha_amax(*operand.amax, operand.scaling), nvfp4::tensor_range(operand.scaling)};
}

__global__ void alpha_kernel(AlphaFactor a, AlphaFactor b, float* alpha) {
  const QuantizedTensor::Factor fa = factor_of(a);
  const QuantizedTensor::Factor fb = factor_of(b);
  *alpha = fa.numerator * fb.numerator / (fa.denominator * fb.denominator);
}

AlphaFactor alpha_factor(const GemmOperand& operand) {
  const QuantizedTensor* tensor = operand.quantized();
  if (tensor == nullptr) return {};
  if (tensor->spec.block.is_whole()) return {.scale = tensor->scales.as<float>()};
  if (tensor->spec.format != Format::nvfp4) return {};
  return {tensor->device_amax.as<float>(), tensor->spec.scaling};
}

/// On the device; 1 where neither operand has a tensor scale.
const float* alpha_of(Device& device, const GemmOperand& a, const GemmOperand& b) {
  const AlphaFactor factor_a = alpha_factor(a);
  const AlphaFactor factor_b = alpha_factor(b);
  if (factor_a.is_one() && factor_b.is_one()) return device.one();
  auto* computed = device.scratch<float>(Device::alpha, 1);
  alpha_kernel<<<1, 1, 0, device.stream()>>>(factor_a, factor_b, computed);
  check_launch();
  return computed;
}

/// The product by matrix units that take both operands as they are; false, and nothing done, if there is none
/// in this device or in cuBLASLt.
bool multiply_natively(Device& device, const GemmOperand& a, const GemmOperand& b,
                       const MutableMatrixView& out, const float* alpha, const float* beta) {
  if (!is_native_output(out)) return false;
  const int capability = device.native_capability();
  if (is_native(Format::fp8, capability) && is_native_fp8(a) && is_native_fp8(b)) {
    const ScaledOperands operands = fp8_operands(device, a, b);
    // Two operands in squares, for example, are a product that cuBLASLt does not have.
    if (!has_fp8_in_blas(capability) || !multiply(device, operands, out, alpha, beta))
      multiply_fp8(device, operands, out, alpha, beta);
    return true;
  }
  if (is_native(Format::nvfp4, capability) && is_native_nvfp4(a) && is_native_nvfp4(b))
    return multiply(device, nvfp4_operands(device, a, b), out, alpha, beta);
  return false;
}

/// Whether the operand's values, without the tensor scale, are exact in BF16.
bool is_bf16(const GemmOperand& operand) {
  if (const QuantizedTensor* tensor = operand.quantized()) return !has_f32_block_scales(tensor->spec);
  return operand.dense()->dtype == DType::bf16;
}

/// The operand as a dense matrix of the wanted type, as it lies or written to `slot`.
MatrixView dense(Device& device, const GemmOperand& operand, DType wanted, Device::Slot slot) {
  const auto oriented = [&](const MatrixView& view) {
    return operand.is_transposed() ? view.transposed() : view;
  };
  const QuantizedTensor* tensor = operand.quantized();
  if (tensor == nullptr) {
    const MatrixView view = *operand.dense();
    if (view.dtype == wanted) return oriented(view);
    const MatrixView lying = view.is_row_major() ? view : view.transposed();
    const MutableMatrixView copy =
        mutable_view_of(device.scratch<float>(slot, lying.size()), lying.rows, lying.cols);
    cast(device, {lying, copy});
    const MatrixView result = as_const(copy);
    return oriented(view.is_row_major() ? result : result.transposed());
  }
  const bool row_major = tensor->order == CodeOrder::row_major;
  const std::int64_t lines = row_major ? tensor->rows : tensor->cols;
  const std::int64_t length = row_major ? tensor->cols : tensor->rows;
  const auto as_lying = [&](const MatrixView& view) {
    return oriented(row_major ? view : view.transposed());
  };
  if (tensor->form == Form::operand && wanted == DType::bf16)
    return as_lying(view_of(tensor->codes.as<Bf16>(), lines, length));
  if (wanted == DType::bf16) {
    auto* values = device.scratch<Bf16>(slot, lines * length);
    expand(device, *tensor, values);
    return as_lying(view_of(values, lines, length));
  }
  // f32 beside an f32 operand: rare, so the values take a detour.
  auto* values = device.scratch<float>(slot, lines * length);
  if (has_f32_block_scales(tensor->spec)) {
    const MutableMatrixView decoded = mutable_view_of(values, tensor->rows, tensor->cols);
    dequantize(device, *tensor, decoded);
    return oriented(as_const(decoded));
  }
  const MatrixView operand_values = [&] {
    if (tensor->form == Form::operand) return view_of(tensor->codes.as<Bf16>(), lines, length);
    auto* expanded = device.scratch<Bf16>(Device::expanded, lines * length);
    expand(device, *tensor, expanded);
    return view_of(expanded, lines, length);
  }();
  const MutableMatrixView out = mutable_view_of(values, lines, length);
  cast(device, {operand_values, out});
  return as_lying(as_const(out));
}

}  // namespace

void gemm(Device& device, const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
          Accumulate accumulate) {
  check(a, b, out, accumulate);
  const float* beta = accumulate == Accumulate::yes ? device.one() : device.zero();
  const float* alpha = alpha_of(device, a, b);
  if (multiply_natively(device, a, b, out, alpha, beta)) return;
  const DType type = is_bf16(a) && is_bf16(b) ? DType::bf16 : DType::f32;
  const MatrixView dense_a = dense(device, a, type, Device::operand_a);
  const MatrixView dense_b = dense(device, b, type, Device::operand_b);
  if (type == DType::f32 && out.dtype == DType::bf16) {  // not a product that cuBLASLt has
    const MutableMatrixView wide =
        mutable_view_of(device.scratch<float>(Device::product, out.size()), out.rows, out.cols);
    multiply(device, dense_a, dense_b, wide, alpha, beta);
    cast(device, {as_const(wide), out});
    return;
  }
  multiply(device, dense_a, dense_b, out, alpha, beta);
}

}  // namespace tetrad::cuda
