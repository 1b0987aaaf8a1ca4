// SPDX-License-Identifier: Apache-2.0
// NVFP4 16x16 of f32 or BF16, to nearest: as an operand that lies as the input does, for squares look the
// same from both sides, or as codes of its rows. One thread holds 16 rows of four columns; four lanes share a
// block.

#include <algorithm>

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/quantize/dispatch.cuh"
#include "tetrad/backend/cuda/quantize/kernels.h"
#include "tetrad/backend/cuda/quantize/nvfp4_columns.cuh"
#include "tetrad/backend/cuda/quantize/threads.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 128;

/// The matrix as it lies.
struct Memory {
  std::int64_t rows, cols, stride;
};

Memory memory_of(const QuantProblem& p) {
  if (p.is_row_major()) return {p.rows, p.cols, p.row_stride};
  return {p.cols, p.rows, p.col_stride};
}

/// A thread's values as an operand.
__device__ void store_operand(const QuantProblem& p, const Memory& memory, std::int64_t row, std::int64_t col,
                              const nvfp4::BlockScale& scale, const float (&v)[kPatchRows][kPatchCols]) {
  const float value = p.is_poisoned() ? std::numeric_limits<float>::quiet_NaN() : E4m3::decode(scale.byte);
  Bf16* out = static_cast<Bf16*>(p.codes) + row * memory.cols + col;
#pragma unroll
  for (int r = 0; r < kPatchRows; ++r) {
    float decoded[kPatchCols];
#pragma unroll
    for (int c = 0; c < kPatchCols; ++c)
      decoded[c] = E2m1::decode(E2m1::encode(v[r][c] * scale.encode)) * value;
    const uint2 pairs = {pack_bf16(decoded[0], decoded[1]), pack_bf16(decoded[2], decoded[3])};
    *reinterpret_cast<uint2*>(out + r * memory.cols) = pairs;
  }
}

/// As codes, of a matrix that lies by rows. Each lane of a block stores the scale of four of its rows.
__device__ void store_codes(const QuantProblem& p, std::int64_t row, std::int64_t col,
                            const nvfp4::BlockScale& scale, const float (&v)[kPatchRows][kPatchCols]) {
  const bool poisoned = p.is_poisoned();
  auto* codes = static_cast<std::uint8_t*>(p.codes) + (row * p.cols + col) / 2;
#pragma unroll
  for (int r = 0; r < kPatchRows; ++r) {
    std::uint32_t word = 0;
#pragma unroll
    for (int c = 0; c < kPatchCols; ++c) word |= E2m1::encode(v[r][c] * scale.encode) << (4 * c);
    *reinterpret_cast<std::uint16_t*>(codes + r * (p.cols / 2)) =
        poisoned ? std::uint16_t{0} : static_cast<std::uint16_t>(word);
  }
  constexpr int kLaneRows = kPatchRows * kPatchCols / nvfp4::kBlock;
  const std::int64_t first = row + col / kPatchCols % (nvfp4::kBlock / kPatchCols) * kLaneRows;
  auto* scales = static_cast<std::uint8_t*>(p.scales) + first * p.scale_cols + col / nvfp4::kBlock;
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r)
    scales[r * p.scale_cols] = poisoned ? Nvfp4Codec::kPoison : static_cast<std::uint8_t>(scale.byte);
}

template <typename T, bool kOperand>
__global__ void __launch_bounds__(kThreads) encode_kernel(QuantProblem p, Memory memory) {
  if (is_first_thread()) *p.amax = p.tensor_amax();
  const auto per_row = static_cast<std::uint32_t>(memory.cols / kPatchCols);
  const std::uint32_t count = static_cast<std::uint32_t>(memory.rows / kPatchRows) * per_row;
  const std::uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  const bool inside = index < count;  // holds for all four lanes of a block, or for none
  const std::uint32_t block = index / max(per_row, 1u);
  const std::int64_t row = std::int64_t{block} * kPatchRows;
  const std::int64_t col = std::int64_t{index - block * per_row} * kPatchCols;

  float v[kPatchRows][kPatchCols] = {};
  std::uint32_t largest = 0;
  if (inside) {
#pragma unroll
    for (int r = 0; r < kPatchRows; ++r)
      load(static_cast<const T*>(p.x) + (row + r) * memory.stride + col, v[r]);
  }
#pragma unroll
  for (int r = 0; r < kPatchRows; ++r)
#pragma unroll
    for (int c = 0; c < kPatchCols; ++c)
      largest = max(largest, std::bit_cast<std::uint32_t>(v[r][c]) & 0x7FFFFFFFu);
  largest = max(largest, __shfl_xor_sync(kAllLanes, largest, 1));
  largest = max(largest, __shfl_xor_sync(kAllLanes, largest, 2));
  if (!inside) return;

  const nvfp4::BlockScale scale =
      fast_block_scale(std::bit_cast<float>(largest), nvfp4::tensor_scale(p.tensor_amax()));
  if constexpr (kOperand)
    store_operand(p, memory, row, col, scale, v);
  else
    store_codes(p, row, col, scale, v);
}

std::int64_t patches_of(const Memory& memory) {
  return memory.rows / kPatchRows * (memory.cols / kPatchCols);
}

}  // namespace

bool suits_nvfp4_2d(const QuantProblem& p) {
  const std::int64_t element = p.dtype == DType::bf16 ? sizeof(Bf16) : sizeof(float);
  const Memory memory = memory_of(p);
  const bool lies_alike = p.is_row_major() == (p.order == CodeOrder::row_major);
  return p.format == Format::nvfp4 && p.block_row_shift == 4 && p.rounding == Rounding::nearest &&
         !depends_on_values(p.scaling) && p.hadamard == 0 && lies_alike &&
         (p.form == Form::operand || p.is_row_major()) &&
         is_aligned(p.x, memory.stride, element, element * kPatchCols) && has_few_items(patches_of(memory));
}

void encode_nvfp4_2d(Device& device, const QuantProblem& problem) {
  const Memory memory = memory_of(problem);
  const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(patches_of(memory), kThreads));
  with_type(problem.dtype, [&]<typename T>(T) {
    with_bool(problem.form == Form::operand, [&](auto operand) {
      launch(device, blocks, kThreads, 0, encode_kernel<T, operand>, problem, memory);
    });
  });
}

}  // namespace tetrad::cuda
