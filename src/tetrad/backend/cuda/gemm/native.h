// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the matrix units of a device multiply as it is, codes with their block scales, and what is expanded
// for them. (No CUDA here: tests ask without a device.)

#include "tetrad/ops/gemm.h"

namespace tetrad::cuda {

/// Whether a device of compute capability `major`.x multiplies a format as it is, in cuBLASLt.
constexpr bool is_native(Format format, int major) {
  constexpr int kHopper = 9;
  constexpr int kBlackwell = 10;
  switch (format) {
    case Format::fp8:
      return major == kHopper;  // the only one with f32 scales of 128 values
    case Format::nvfp4:
      return major >= kBlackwell;
    case Format::mxfp4:
      break;  // cuBLASLt has E8M0 scales for eight-bit elements only
  }
  return false;
}

/// What a quantizer leaves where an operand is wanted: codes if they are multiplied as they are, and always
/// of FP8, whose values are not exact in BF16.
constexpr Form operand_form(Format format, int major) {
  return format == Format::fp8 || is_native(format, major) ? Form::packed : Form::operand;
}

/// Whether the native products of these formats take this operand.
bool is_native_fp8(const GemmOperand& operand);
bool is_native_nvfp4(const GemmOperand& operand);

/// And whether they can write to this output, of any format.
bool is_native_output(const MutableMatrixView& out);

}  // namespace tetrad::cuda
