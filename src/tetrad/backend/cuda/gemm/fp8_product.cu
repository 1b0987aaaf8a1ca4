// SPDX-License-Identifier: Apache-2.0
// A block computes 128 x 128 of the result, 128 of the depth at a time: a slice, in which every row and every
// column has one scale. The products of a slice are added by the matrix units, the scaled slices in f32 in
// ascending order, as numerics.md defines it. Warp w of 16 has rows 32 (w / 4) … and columns 32 (w % 4) … .

#include "tetrad/backend/cuda/gemm/fp8_product.h"

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/backend/cuda/common/shared_tile.cuh"
#include "tetrad/numerics/fp8.h"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kSide = 128;  //!< of the result
constexpr int kSlice = fp8::kBlock;
constexpr int kStages = 3;          //!< slices in shared memory: one is read, the others are on their way
constexpr int kRowTiles = 32 / 16;  //!< of a warp's result, 16 x 8 each …
constexpr int kColTiles = 32 / 8;   //!< … and across
constexpr int kVectorCodes = 16;

/// Pairs of codes lie in shared memory as BF16 values would.
using CodeTile = SharedTile<kSlice / 2>;

struct ProductMemory {
  alignas(128) Bf16 a[kStages][CodeTile::size(kSide)];
  alignas(128) Bf16 b[kStages][CodeTile::size(kSide)];
};

/// An operand as the kernel sees it. The scale of (row, slice) is scales[(row >> shift) * row_step + slice *
/// slice_step].
struct ProductSide {
  const std::uint8_t* codes;
  const float* scales;
  std::int64_t rows, depth;
  int shift;
  std::int64_t row_step, slice_step;

  __device__ float scale(std::int64_t row, std::int64_t slice) const {
    return row < rows ? scales[(row >> shift) * row_step + slice * slice_step] : 0.0f;
  }
  /// Copies a slice of kSide rows; zeros beyond the edges.
  __device__ void fetch(std::int64_t first_row, std::int64_t slice, Bf16* to) const {
    constexpr int kVectors = kSlice / kVectorCodes;
    const CodeTile tile{to, 0};
#pragma unroll 1  // registers are few
    for (int i = static_cast<int>(threadIdx.x); i < kSide * kVectors; i += kThreads) {
      const std::int64_t row = first_row + i / kVectors;
      const std::int64_t col = slice * kSlice + i % kVectors * kVectorCodes;
      const bool is_there = row < rows && col < depth;
      copy_async(tile.at(i / kVectors, i % kVectors), is_there ? codes + row * depth + col : codes, is_there);
    }
  }
};

ProductSide side_of(const ScaledOperand& operand) {
  const bool squares = operand.scaling == ScaleMode::block128_f32;
  const BlockShape block = squares ? BlockShape{kSlice, kSlice} : BlockShape{1, kSlice};
  const std::int64_t line = fp8_scale_lines(block, operand.rows, operand.depth).length;
  return {operand.codes,     static_cast<const float*>(operand.scales),
          operand.rows,      operand.depth,
          squares ? 7 : 0,   squares ? line : 1,
          squares ? 1 : line};
}

/// Where a thread works.
struct ProductPlace {
  int lane, row, col;             //!< the warp's first row and column in the block's result
  std::int64_t out_row, out_col;  //!< the lane's first ones in the result: others are 8 below, 1 to the right

  __device__ ProductPlace(std::int64_t block_row, std::int64_t block_col)
      : lane(static_cast<int>(threadIdx.x) % kWarp),
        row(static_cast<int>(threadIdx.x) / kWarp / 4 * 32),
        col(static_cast<int>(threadIdx.x) / kWarp % 4 * 32),
        out_row(block_row + row + lane / 4),
        out_col(block_col + col + lane % 4 * 2) {}
};

using Results = float[kRowTiles][kColTiles][4];

/// Calls body(row tile, column tile, i) for each of a thread's results.
template <typename Body>
__device__ inline void for_each_result(const Body& body) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int c = 0; c < kColTiles; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) body(r, c, i);
}

__device__ inline void multiply_slice(const ProductPlace& place, const CodeTile& a, const CodeTile& b,
                                      Results& sums) {
  for_each_result([&](int r, int c, int i) { sums[r][c][i] = 0; });
#pragma unroll 1
  for (int k = 0; k < kSlice / 2; k += 16) {  // pairs of codes
    std::uint32_t columns[kColTiles / 2][4];
#pragma unroll
    for (int c = 0; c < kColTiles / 2; ++c) b.second_square(columns[c], place.col + 16 * c, k);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      std::uint32_t rows[4];
      a.first(rows, place.row + 16 * r, k);
#pragma unroll
      for (int c = 0; c < kColTiles; ++c)
        multiply_add_e4m3(sums[r][c], rows, columns[c / 2][c % 2 * 2], columns[c / 2][c % 2 * 2 + 1]);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 1)
    product_kernel(ProductSide a, ProductSide b, View<T> out, const float* alpha, const float* beta) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto& memory = *reinterpret_cast<ProductMemory*>(shared_bytes);
  const auto row_blocks = static_cast<std::uint32_t>((a.rows + kSide - 1) / kSide);
  const std::int64_t block_row = std::int64_t{blockIdx.x % row_blocks} * kSide;
  const std::int64_t block_col = std::int64_t{blockIdx.x / row_blocks} * kSide;
  const ProductPlace place(block_row, block_col);
  const int slices = static_cast<int>((a.depth + kSlice - 1) / kSlice);
  const auto fetch = [&](int slice) {
    if (slice < slices) {
      a.fetch(block_row, slice, memory.a[slice % kStages]);
      b.fetch(block_col, slice, memory.b[slice % kStages]);
    }
    commit_copies();
  };

#pragma unroll
  for (int slice = 0; slice + 1 < kStages; ++slice) fetch(slice);
  Results totals = {};
  for (int slice = 0; slice < slices; ++slice) {
    float row_scales[kRowTiles][2];
    float col_scales[kColTiles][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
        row_scales[r][half] = a.scale(place.out_row + 16 * r + 8 * half, slice);
#pragma unroll
      for (int c = 0; c < kColTiles; ++c) col_scales[c][half] = b.scale(place.out_col + 8 * c + half, slice);
    }
    wait_for_copies<kStages - 2>();
    __syncthreads();  // the slice is there; nobody reads the one before
    fetch(slice + kStages - 1);
    Results sums;
    multiply_slice(place, {memory.a[slice % kStages], place.lane}, {memory.b[slice % kStages], place.lane},
                   sums);
    for_each_result([&](int r, int c, int i) {
      totals[r][c][i] += sums[r][c][i] * row_scales[r][i / 2] * col_scales[c][i % 2];
    });
  }

  const float factor = *alpha;
  const float before = *beta;
  for_each_result([&](int r, int c, int i) {
    const std::int64_t row = place.out_row + 16 * r + i / 2 * 8;
    const std::int64_t col = place.out_col + 8 * c + i % 2;
    if (row >= a.rows || col >= b.rows) return;
    T& element = out.row(row)[col];
    const float value = factor * totals[r][c][i];
    assign(element, before == 0 ? value : value + before * to_f32(element));
  });
}

}  // namespace

void multiply_fp8(Device& device, const ScaledOperands& operands, const MutableMatrixView& out,
                  const float* alpha, const float* beta) {
  const std::int64_t blocks = ceil_div(out.rows, kSide) * ceil_div(out.cols, kSide);
  with_type(out.dtype, [&]<typename T>(T) {
    launch_with_shared(device, blocks, kThreads, sizeof(ProductMemory), product_kernel<T>,
                       side_of(operands.a), side_of(operands.b), view_as<T>(out), alpha, beta);
  });
}

}  // namespace tetrad::cuda
