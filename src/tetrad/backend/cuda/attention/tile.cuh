// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tiles of attention on tensor cores: rows of BF16 in shared memory.
//
// A tile is one or two panels of 64 columns, so that a row of a panel has 128 bytes: eight chunks of 16.
// Chunk c of row r lies at place c ^ (r % 8), so that the eight rows that one load of a matrix takes at the
// same c lie in different banks. Chunks are taken in pairs (16 elements, the depth of one product): since 2p
// + c = 2p ^ c for c in {0, 1}, pair p of a lane's row is its address for pair 0 exclusive-or 32p.

#include "tetrad/backend/cuda/attention/mma.cuh"
#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/numerics/bf16.h"

namespace tetrad::cuda {

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.69314718055994531f;
inline constexpr unsigned kRowBytes = 128;  //!< a row of a panel

__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }

/// What a block may have on the smallest of the GPUs that we compile for: compute capability 8.6, 8.9
/// and 12.0.
inline constexpr unsigned kSharedOfEveryGpu = 99 * 1024;

template <int kDimension, int kRowCount>
struct Tile {
  static constexpr int kDim = kDimension;
  static constexpr int kRows = kRowCount;
  static constexpr int kChunks = kDim / 8;
  static constexpr unsigned kPanel = kRows * kRowBytes;
  static constexpr unsigned kBytes = kPanel * kDim / 64;
  static_assert(kDim % 64 == 0 && kRows % 8 == 0);

  __device__ static unsigned place(int row, int chunk) {
    return static_cast<unsigned>(chunk / 8) * kPanel + static_cast<unsigned>(row) * kRowBytes +
           static_cast<unsigned>(chunk % 8 ^ row % 8) * 16;
  }
  /// From a lane's place in the first 16 rows and pair 0 to that in the 16 rows from `row`, a multiple of 8,
  /// and pair `pair`.
  __device__ static unsigned move(unsigned place, int row, int pair) {
    return (place ^ static_cast<unsigned>(pair % 4 * 32)) + static_cast<unsigned>(row) * kRowBytes +
           static_cast<unsigned>(pair / 4) * kPanel;
  }
};

/// All rows of a tile by all kThreads threads; those from `count` on become zero.
template <typename T, int kThreads>
__device__ inline void copy_tile(unsigned tile, const Bf16* from, std::int64_t stride, int count) {
  constexpr int kStep = kThreads / T::kChunks;  // rows at a time
  static_assert(kStep % 8 == 0 && kThreads % T::kChunks == 0);
  const int row = static_cast<int>(threadIdx.x) / T::kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % T::kChunks;
  const unsigned to = tile + T::place(row, chunk);
  const Bf16* source = from + row * stride + chunk * 8;
#pragma unroll
  for (int first = 0; first < T::kRows; first += kStep) {
    if (T::kRows % kStep != 0 && row + first >= T::kRows) break;
    const bool exists = row + first < count;
    copy_async<16>(to + static_cast<unsigned>(first) * kRowBytes, exists ? source : from, exists);
    source += kStep * stride;
  }
}

/// A result, rounded to BF16, as the left operand of the next product: each lane has what it needs.
template <int kM, int kN>
__device__ inline void to_fragments(const float (&values)[kM][kN][4], Fragment (&out)[kM][kN / 2]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int k = 0; k < kN / 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&from)[4] = values[m][2 * k + i / 2];
        out[m][k].pair[i] = pack_bf16(from[i % 2 * 2], from[i % 2 * 2 + 1]);
      }
}

/// A warp's sums, row r times factor[r / 8] of the lane, to memory, by way of its own rows of the tile, from
/// `first` on. Rows from `count` on do not exist.
template <typename T, int kM>
__device__ inline void store_rows(const float (&sums)[kM][T::kChunks][4], const float (&factor)[2 * kM],
                                  unsigned char* tile, int first, Bf16* to, std::int64_t stride, int count) {
  const int lane = lane_index();
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < T::kChunks; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first + 16 * m + 8 * half + lane / 4;
        const float by = factor[2 * m + half];
        *reinterpret_cast<unsigned*>(tile + T::place(row, n) + lane % 4 * 4) =
            pack_bf16(sums[m][n][2 * half] * by, sums[m][n][2 * half + 1] * by);
      }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 * kM * T::kChunks / kWarp; ++i) {
    const int row = (i * kWarp + lane) / T::kChunks;
    const int chunk = (i * kWarp + lane) % T::kChunks;
    if (row < count)
      *reinterpret_cast<uint4*>(to + row * stride + chunk * 8) =
          *reinterpret_cast<const uint4*>(tile + T::place(first + row, chunk));
  }
}

}  // namespace tetrad::cuda
