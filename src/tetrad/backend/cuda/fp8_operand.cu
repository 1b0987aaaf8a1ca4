#include "tetrad/backend/cuda/fp8_operand.h"

#include "tetrad/backend/cuda/launch.cuh"
#include "tetrad/backend/cuda/turned_tile.cuh"
#include "tetrad/numerics/fp8.h"

namespace tetrad::cuda {
namespace {

constexpr std::int64_t kUnit = 16;      //!< cuBLASLt wants extents that are multiples of this
constexpr std::int64_t kScaleLine = 4;  //!< and lines of 128x128 scales padded to a multiple of this
constexpr int kThreads = 256;

/// in [rows, cols] -> out [cols, rows], bytes; extents are multiples of 16.
__global__ void __launch_bounds__(kTileThreads)
    transpose_bytes_kernel(const std::uint8_t* in, std::int64_t rows, std::int64_t cols, std::uint8_t* out) {
  __shared__ TurnedTile tile;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t col = std::int64_t{blockIdx.x} * kTile;
  turn_square_of_bytes(in, rows, cols, row, col, thread, tile);
  __syncthreads();
  tile.store(thread, row, col, rows, cols, out);
}

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
  Fp8Operand operand;
  Arrangement scales;
};

Prepared prepare(Device& device, const GemmOperand& operand, Device::Slot slot) {
  const QuantizedTensor& tensor = *operand.quantized();
  const std::int64_t rows = operand.rows();
  const std::int64_t depth = operand.cols();
  const bool squares = tensor.spec.block.rows > 1;
  const std::int64_t depth_blocks = depth / fp8::kBlock;
  const std::int64_t row_blocks = ceil_div(rows, std::int64_t{fp8::kBlock});
  const std::int64_t line = ceil_div(depth_blocks, kScaleLine) * kScaleLine;
  const std::int64_t scales = squares ? row_blocks * line : depth_blocks * rows;
  const bool row_major = tensor.order == CodeOrder::row_major;
  const bool depth_last = row_major != operand.is_transposed();
  constexpr std::size_t kAlignment = 256;
  const std::size_t scale_bytes =
      (static_cast<std::size_t>(scales) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  std::byte* memory =
      device.scratch(slot, scale_bytes + (depth_last ? 0 : static_cast<std::size_t>(rows * depth)));
  auto* arranged = reinterpret_cast<float*>(memory);

  // Stored scales are [scale_rows, scale_cols] of the tensor, lying by its order; the operand may be the
  // other way round.
  const std::int64_t tensor_row_step = row_major ? tensor.scale_cols() : 1;
  const std::int64_t tensor_col_step = row_major ? 1 : tensor.scale_rows();
  const std::int64_t row_step = operand.is_transposed() ? tensor_col_step : tensor_row_step;
  const std::int64_t depth_step = operand.is_transposed() ? tensor_row_step : tensor_col_step;
  const auto* stored = tensor.scales.as<float>();
  const Arrangement arrangement =
      squares ? Arrangement{stored, depth_step, row_step, depth_blocks, row_blocks, line, arranged}
              : Arrangement{stored, row_step, depth_step, rows, depth_blocks, rows, arranged};

  const auto* codes = tensor.codes.as<std::uint8_t>();
  if (!depth_last) {
    auto* turned = reinterpret_cast<std::uint8_t*>(memory + scale_bytes);
    const dim3 grid(static_cast<unsigned>(ceil_div(rows, std::int64_t{kTile})),
                    static_cast<unsigned>(ceil_div(depth, std::int64_t{kTile})), 1);
    transpose_bytes_kernel<<<grid, kTileThreads, 0, device.stream()>>>(codes, depth, rows, turned);
    check_launch();
    codes = turned;
  }
  return {{codes, arranged, rows, depth, squares}, arrangement};
}

}  // namespace

bool is_native_fp8(const GemmOperand& operand) {
  const QuantizedTensor* tensor = operand.quantized();
  if (tensor == nullptr || tensor->spec.format != Format::fp8) return false;
  const BlockShape& block = tensor->spec.block;
  // A block of 1x128 has its 128 elements along the tensor's columns, which must then be the reduction
  // dimension.
  const bool rows_of_128 = block == BlockShape{1, fp8::kBlock} && !operand.is_transposed();
  const bool squares = block == BlockShape{fp8::kBlock, fp8::kBlock};
  return (rows_of_128 || squares) && operand.rows() % kUnit == 0 && operand.cols() % fp8::kBlock == 0;
}

Fp8Operands fp8_operands(Device& device, const GemmOperand& a, const GemmOperand& b) {
  const Prepared first = prepare(device, a, Device::operand_a);
  const Prepared second = prepare(device, b, Device::operand_b);
  launch(device, ceil_div(first.scales.size() + second.scales.size(), std::int64_t{kThreads}), kThreads, 0,
         arrange_scales_kernel, first.scales, second.scales);
  return {first.operand, second.operand};
}

}  // namespace tetrad::cuda
