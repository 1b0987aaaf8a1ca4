// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/gemm/scaled_operand.h"

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/gemm/nvfp4_swizzled_scales.cuh"
#include "tetrad/backend/cuda/gemm/transposed_codes.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) swizzle_kernel(SwizzledScales a, SwizzledScales b) {
  const std::int64_t piece = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (piece < a.pieces())
    a.write(piece);
  else if (piece < a.pieces() + b.pieces())
    b.write(piece - a.pieces());
}

/// An operand whose codes are ready and whose scales are still to be swizzled.
struct Prepared {
  ScaledOperand operand;
  SwizzledScales scales;
};

Prepared prepare(Device& device, const GemmOperand& operand, Device::Slot slot) {
  const QuantizedTensor& tensor = *operand.quantized();
  const std::int64_t rows = operand.rows();
  const std::int64_t depth = operand.cols();
  const std::int64_t columns = depth / nvfp4::kBlock;
  const std::int64_t scale_bytes = blackwell::scale_bytes(rows, columns);
  const bool row_major = tensor.order == CodeOrder::row_major;
  const bool as_it_lies = row_major && !operand.is_transposed();
  std::uint8_t* memory =
      device.scratch<std::uint8_t>(slot, scale_bytes + (as_it_lies ? 0 : rows * depth / 2));

  const auto* codes = tensor.codes.as<std::uint8_t>();
  if (!as_it_lies) {
    std::uint8_t* transposed = memory + scale_bytes;
    if (operand.is_transposed())
      transpose_packed_codes(device, codes, depth, rows, transposed);
    else
      transpose_bytes(device, codes, depth / 2, rows,
                      transposed);  // pairs are along the reduction dimension already
    codes = transposed;
  }
  SwizzledScales scales{tensor.scales.as<std::uint8_t>(), 0, 0, 0, rows, columns, memory};
  if (operand.is_transposed()) {  // squares: each scale stands in 16 rows of the tensor, of which one is read
    scales.row_shift = 4;
    scales.row_step = 1;
    scales.column_step = nvfp4::kBlock * tensor.scale_cols();
  } else {
    scales.row_step = row_major ? tensor.scale_cols() : 1;
    scales.column_step = row_major ? 1 : tensor.scale_rows();
  }
  return {{DType::f4, codes, memory, rows, depth, ScaleMode::vec16_e4m3}, scales};
}

}  // namespace

ScaledOperands nvfp4_operands(Device& device, const GemmOperand& a, const GemmOperand& b) {
  const Prepared first = prepare(device, a, Device::operand_a);
  const Prepared second = prepare(device, b, Device::operand_b);
  launch(device, ceil_div(first.scales.pieces() + second.scales.pieces(), std::int64_t{kThreads}), kThreads,
         0, swizzle_kernel, first.scales, second.scales);
  return {first.operand, second.operand};
}

}  // namespace tetrad::cuda
