// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's narrow formats have the reduction dimension last in both operands, and addresses and lines that
// are multiples of 16 bytes.

#include "tetrad/backend/cuda/gemm/native.h"

#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad::cuda {
namespace {

constexpr std::int64_t kRowUnit = 16;      //!< rows are a multiple of this
constexpr std::int64_t kFp4Depth = 32;     //!< codes in 16 bytes
constexpr std::uintptr_t kLineBytes = 16;  //!< addresses, and bytes from line to line

const QuantizedTensor* quantized(const GemmOperand& operand, Format format) {
  const QuantizedTensor* tensor = operand.quantized();
  return tensor != nullptr && tensor->spec.format == format ? tensor : nullptr;
}

}  // namespace

bool is_native_fp8(const GemmOperand& operand) {
  const QuantizedTensor* tensor = quantized(operand, Format::fp8);
  return tensor != nullptr &&
         fits_fp8_units(tensor->spec.block, operand.rows(), operand.cols(), operand.is_transposed());
}

bool is_native_nvfp4(const GemmOperand& operand) {
  const QuantizedTensor* tensor = quantized(operand, Format::nvfp4);
  if (tensor == nullptr || tensor->form != Form::packed) return false;
  // A block of 1x16 lies along the depth, as with FP8; of squares only those are transposed that lie as
  // weights do.
  const bool transposed_2d =
      tensor->spec.block == BlockShape{nvfp4::kBlock, nvfp4::kBlock} && tensor->order == CodeOrder::row_major;
  return (!operand.is_transposed() || transposed_2d) && operand.rows() % kRowUnit == 0 &&
         operand.cols() % kFp4Depth == 0;
}

bool is_native_output(const MutableMatrixView& out) {
  return reinterpret_cast<std::uintptr_t>(out.data) % kLineBytes == 0 &&
         out.row_stride * bits_of(out.dtype) / 8 % static_cast<std::int64_t>(kLineBytes) == 0;
}

}  // namespace tetrad::cuda
