// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operands as matrix units for narrow formats take them: codes with the reduction dimension last, and block
// scales in a layout of cuBLASLt.

#include <cstdint>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/core/dtype.h"
#include "tetrad/ops/gemm.h"

namespace tetrad::cuda {

/// What shares a scale, and how scales lie.
enum class ScaleMode : std::uint8_t {
  none,
  vec128_f32,    //!< 1x128, and …
  block128_f32,  //!< … 128x128: as fp8_scale_lines() has them
  vec16_e4m3,    //!< 1x16: tiles of 128x4, as numerics/blackwell_layout.h has them
};

struct ScaledOperand {
  DType dtype;                //!< E4M3 or E2M1
  const std::uint8_t* codes;  //!< [rows, depth]; E2M1: two in a byte
  const void* scales;
  std::int64_t rows, depth;
  ScaleMode scaling;
};

struct ScaledOperands {
  ScaledOperand a, b;
};

// From operands that are both native (native.h). What has to be rearranged is written to Device::operand_a
// and operand_b.

/// FP8 as cuBLASLt and multiply_fp8() take it.
ScaledOperands fp8_operands(Device& device, const GemmOperand& a, const GemmOperand& b);
/// NVFP4 as Blackwell's do.
ScaledOperands nvfp4_operands(Device& device, const GemmOperand& a, const GemmOperand& b);

}  // namespace tetrad::cuda
