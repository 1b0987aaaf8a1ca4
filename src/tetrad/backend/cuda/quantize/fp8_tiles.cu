// SPDX-License-Identifier: Apache-2.0
// FP8 in tiles of 128x128 values, which hold whole blocks of either shape: see fp8_tiles.cuh. The values
// are read once; whether they are all finite is known only afterwards.

#include <type_traits>

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/quantize/dispatch.cuh"
#include "tetrad/backend/cuda/quantize/fp8_tiles.cuh"
#include "tetrad/backend/cuda/quantize/kernels.h"
#include "tetrad/backend/cuda/quantize/threads.cuh"

namespace tetrad::cuda {
namespace {

template <bool kRows, Columns kColumns>
__global__ void __launch_bounds__(kTileThreads, 3) encode_kernel(TileProblem p, QuantState* state) {
  __shared__ TileShared shared;
  const int thread = static_cast<int>(threadIdx.x);
  const TileProblem::Place tile = p.tile(blockIdx.x);
  const Square square = load_square(p, tile, thread);
  share_maxima<kRows, kColumns>(square, thread, shared);
  __syncthreads();
  const std::uint32_t largest = share_scales<kRows, kColumns>(p, tile, thread, shared);
  raise_from_block(state, largest);  // with the barriers that the scales need
  encode_square<kRows, kColumns>(p, tile, thread, square, shared);
  if constexpr (kColumns == Columns::transposed) {
    __syncthreads();
    store_transposed(p, tile, thread, shared);
  }
}

template <bool kRows>
void launch_tiles(Device& device, const TileProblem& p, Columns columns, QuantState* state) {
  const std::int64_t tiles = ceil_div(p.rows, std::int64_t{kTile}) * p.tiles_per_row;
  const auto start = [&](auto kernel) { launch(device, tiles, kTileThreads, 0, kernel, p, state); };
  switch (columns) {
    case Columns::unused:
      if constexpr (kRows) start(encode_kernel<kRows, Columns::unused>);
      return;
    case Columns::as_they_lie:
      return start(encode_kernel<kRows, Columns::as_they_lie>);
    case Columns::transposed:
      return start(encode_kernel<kRows, Columns::transposed>);
  }
}

Columns columns_of(const QuantProblem& column) {
  return column.order == CodeOrder::row_major ? Columns::transposed : Columns::as_they_lie;
}

// --- 128x128 ----------------------------------------------------------------------------------------------

/// The matrix as it lies, by rows; so do its codes.
struct Memory {
  std::int64_t rows, cols, stride;
};

Memory memory_of(const QuantProblem& p) {
  if (p.is_row_major()) return {p.rows, p.cols, p.row_stride};
  return {p.cols, p.rows, p.col_stride};
}

// A warp has eight rows of the tile, a lane four columns of them.
constexpr int kLaneRows = 8;
constexpr int kLaneCols = kTile / kWarp;
constexpr int kBlockThreads = kTile / kLaneRows * kWarp;

template <typename T>
__global__ void __launch_bounds__(kBlockThreads, 2)
    encode_block_kernel(const T* x, Memory memory, std::uint8_t* codes, float* scales, QuantState* state) {
  const auto blocks_per_row = static_cast<std::uint32_t>((memory.cols + kTile - 1) / kTile);
  const std::uint32_t block_row = blockIdx.x / blocks_per_row;
  const std::uint32_t block_col = blockIdx.x - block_row * blocks_per_row;
  const std::int64_t row = std::int64_t{block_row} * kTile + threadIdx.x / kWarp * kLaneRows;
  const std::int64_t col = std::int64_t{block_col} * kTile + threadIdx.x % kWarp * kLaneCols;

  float v[kLaneRows][kLaneCols] = {};
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r)
    if (row + r < memory.rows && col < memory.cols) load(x + (row + r) * memory.stride + col, v[r]);
  std::uint32_t largest = 0;
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r)
#pragma unroll
    for (int c = 0; c < kLaneCols; ++c)
      largest = max(largest, std::bit_cast<std::uint32_t>(v[r][c]) & 0x7FFFFFFFu);
  largest = largest_of_block(largest);

  const fp8::BlockScale scale = fp8::block_scale(std::bit_cast<float>(largest));
  if (threadIdx.x == 0) {
    scales[blockIdx.x] = scale.decode;
    atomicMax(&state->amax_bits, largest);
  }
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r) {
    const std::uint32_t word = e4m3_codes(v[r][0] * scale.encode, v[r][1] * scale.encode,
                                          v[r][2] * scale.encode, v[r][3] * scale.encode);
    if (row + r < memory.rows && col < memory.cols)
      *reinterpret_cast<std::uint32_t*>(codes + (row + r) * memory.cols + col) = word;
  }
}

/// Squares look the same from both sides, so that a result in the input's order needs no transposition.
bool suits_fp8_128x128(const QuantProblem& p) {
  const std::int64_t element = p.dtype == DType::bf16 ? sizeof(Bf16) : sizeof(float);
  const Memory memory = memory_of(p);
  return p.format == Format::fp8 && !p.whole && p.block_row_shift == p.block_col_shift &&
         p.rounding == Rounding::nearest && p.hadamard == 0 &&
         p.is_row_major() == (p.order == CodeOrder::row_major) && memory.cols % kLaneCols == 0 &&
         is_aligned(p.x, memory.stride, element, element * kLaneCols) &&
         has_few_items(p.block_rows_total * p.block_cols_total);
}

}  // namespace

bool suits_fp8_tiles(const QuantProblem& problem) {
  return suits_fp8_1x128(problem) || suits_fp8_128x128(problem);
}

void encode_fp8_tiles(Device& device, const QuantProblem& problem) {
  if (suits_fp8_1x128(problem)) {
    if (problem.is_row_major())
      launch_tiles<true>(device, tile_problem(problem), Columns::unused, problem.state);
    else
      launch_tiles<false>(device, tile_problem(problem), columns_of(problem), problem.state);
  } else {
    with_type(problem.dtype, [&]<typename T>(T) {
      launch(device, problem.block_rows_total * problem.block_cols_total, kBlockThreads, 0,
             encode_block_kernel<T>, static_cast<const T*>(problem.x), memory_of(problem),
             static_cast<std::uint8_t*>(problem.codes), static_cast<float*>(problem.scales), problem.state);
    });
  }
  finalize(device, problem);
}

bool suit_fp8_tiles(const QuantProblem& row, const QuantProblem& column) {
  return suits_fp8_1x128(row) && suits_fp8_1x128(column) && row.is_row_major() && !column.is_row_major();
}

void encode_fp8_tiles(Device& device, const QuantProblem& row, const QuantProblem& column) {
  launch_tiles<true>(device, tile_problem(row, column), columns_of(column), row.state);
  finalize(device, row, column);
}

}  // namespace tetrad::cuda
