// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/gemm/scaled_operand.h"

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/backend/cuda/gemm/transposed_codes.h"
#include "tetrad/numerics/fp8.h"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 256;

/// out[j * stride + i] = in[i * fast_step + j * slow_step] for i < fast, j < slow.
struct Arrangement {
  const float* in;
  std::int64_t fast_step, slow_step, fast, slow;
  std::int64_t stride;
  float* out;
  __host__ __device__ std::int64_t size() const { return fast * slow; }
  __device__ void move(std::int64_t index) const {
    const std::int64_t i = index % fast;
    const std::int64_t j = index / fast;
    out[j * stride + i] = in[i * fast_step + j * slow_step];
  }
};

__global__ void __launch_bounds__(kThreads) arrange_scales_kernel(Arrangement a, Arrangement b) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index < a.size())
    a.move(index);
  else if (index < a.size() + b.size())
    b.move(index - a.size());
}

/// An operand whose codes are ready and whose scales are still to be arranged.
struct Prepared {
  ScaledOperand operand;
  Arrangement scales;
};

Prepared prepare(Device& device, const GemmOperand& operand, Device::Slot slot) {
  const QuantizedTensor& tensor = *operand.quantized();
  const std::int64_t rows = operand.rows();
  const std::int64_t depth = operand.cols();
  const bool squares = tensor.spec.block.rows > 1;
  const std::int64_t depth_blocks = ceil_div(depth, std::int64_t{fp8::kBlock});
  const Fp8ScaleLines lines = fp8_scale_lines(tensor.spec.block, rows, depth);
  const bool row_major = tensor.order == CodeOrder::row_major;
  const bool depth_last = row_major != operand.is_transposed();
  constexpr std::int64_t kAlignment = 256;
  constexpr std::int64_t kScaleBytes = sizeof(float);
  const std::int64_t scale_bytes =
      ceil_div(lines.count * lines.length * kScaleBytes, kAlignment) * kAlignment;
  auto* memory = device.scratch<std::uint8_t>(slot, scale_bytes + (depth_last ? 0 : rows * depth));
  auto* arranged = reinterpret_cast<float*>(memory);

  // Stored scales are [scale_rows, scale_cols] of the tensor, lying by its order; the operand may be the
  // other way round.
  const std::int64_t tensor_row_step = row_major ? tensor.scale_cols() : 1;
  const std::int64_t tensor_col_step = row_major ? 1 : tensor.scale_rows();
  const std::int64_t row_step = operand.is_transposed() ? tensor_col_step : tensor_row_step;
  const std::int64_t depth_step = operand.is_transposed() ? tensor_row_step : tensor_col_step;
  const auto* stored = tensor.scales.as<float>();
  const Arrangement arrangement =
      squares ? Arrangement{stored, depth_step, row_step, depth_blocks, lines.count, lines.length, arranged}
              : Arrangement{stored, row_step, depth_step, rows, lines.count, lines.length, arranged};

  const auto* codes = tensor.codes.as<std::uint8_t>();
  if (!depth_last) {
    std::uint8_t* transposed = memory + scale_bytes;
    transpose_bytes(device, codes, depth, rows, transposed);
    codes = transposed;
  }
  const ScaleMode scaling = squares ? ScaleMode::block128_f32 : ScaleMode::vec128_f32;
  return {{DType::f8_e4m3, codes, arranged, rows, depth, scaling}, arrangement};
}

}  // namespace

ScaledOperands fp8_operands(Device& device, const GemmOperand& a, const GemmOperand& b) {
  const Prepared first = prepare(device, a, Device::operand_a);
  const Prepared second = prepare(device, b, Device::operand_b);
  launch(device, ceil_div(first.scales.size() + second.scales.size(), std::int64_t{kThreads}), kThreads, 0,
         arrange_scales_kernel, first.scales, second.scales);
  return {first.operand, second.operand};
}

}  // namespace tetrad::cuda
