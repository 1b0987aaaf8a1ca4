// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the matrix units of a device multiply as it is, codes with their block scales, and what is expanded
// for them. (No CUDA here: tests ask without a device.)

#include "tetrad/ops/gemm.h"

namespace tetrad::cuda {

/// Whether a device of a compute capability (90 for 9.0) multiplies a format as it is.
constexpr bool is_native(Format format, int capability) {
  constexpr int kAda = 89;
  constexpr int kBlackwell = 100;
  switch (format) {
    case Format::fp8:
      return capability >= kAda;
    case Format::nvfp4:
      return capability >= kBlackwell;
    case Format::mxfp4:
      break;  // cuBLASLt has E8M0 scales for eight-bit elements only
  }
  return false;
}

/// Whether cuBLASLt has FP8 products with f32 scales of 128 values: on Hopper alone. Elsewhere fp8_product.h
/// has.
constexpr bool has_fp8_in_blas(int capability) { return capability / 10 == 9; }

/// What a quantizer leaves where an operand is wanted: codes if they are multiplied as they are, and always
/// of FP8, whose values are not exact in BF16.
constexpr Form operand_form(Format format, int capability) {
  return format == Format::fp8 || is_native(format, capability) ? Form::packed : Form::operand;
}

/// Whether the native products of these formats take this operand.
bool is_native_fp8(const GemmOperand& operand);
bool is_native_nvfp4(const GemmOperand& operand);

/// And whether they can write to this output, of any format.
bool is_native_output(const MutableMatrixView& out);

}  // namespace tetrad::cuda
