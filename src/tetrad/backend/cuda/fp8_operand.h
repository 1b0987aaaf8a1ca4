#pragma once
// FP8 operands as Hopper's matrix units take them: codes with the reduction dimension last, and block scales
// in the layouts of cuBLASLt.

#include <cstdint>

#include "tetrad/backend/cuda/device.h"
#include "tetrad/ops/gemm.h"

namespace tetrad::cuda {

struct Fp8Operand {
  const std::uint8_t* codes;  //!< E4M3, [rows, depth]
  const float* scales;  //!< 1x128: [depth / 128, rows]; 128x128: [rows / 128, depth / 128], lines padded to a
                        //!< multiple of 4
  std::int64_t rows, depth;
  bool square_blocks;  //!< 128x128
};

/// Whether the native product takes this operand.
bool is_native_fp8(const GemmOperand& operand);

struct Fp8Operands {
  Fp8Operand a, b;
};

/// Of operands that are both native. What has to be turned is written to Device::operand_a and operand_b.
Fp8Operands fp8_operands(Device& device, const GemmOperand& a, const GemmOperand& b);

}  // namespace tetrad::cuda
