#pragma once
// Tiles of attention on tensor cores: rows of kDim BF16 in shared memory, and products of them.
//
// A row is cut into chunks of 16 bytes, and chunk c of row r lies at place c ^ (r % 8), so that the eight
// rows that one load of a matrix takes at the same c lie in different banks. Chunks are taken in pairs (16
// elements, the depth of one product): since 2p + c = 2p ^ c for c in {0, 1}, pair p of a lane's row is its
// address for pair 0 exclusive-or 32p.

#include "tetrad/backend/cuda/attention_mma.cuh"
#include "tetrad/backend/cuda/reduce.cuh"
#include "tetrad/numerics/bf16.h"

namespace tetrad::cuda {

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.69314718055994531f;

template <int kDim>
inline constexpr unsigned kRowBytes = 2 * kDim;

/// Bytes of a tile.
template <int kDim>
constexpr unsigned tile_bytes(int rows) {
  return static_cast<unsigned>(rows) * kRowBytes<kDim>;
}

__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }

template <int kDim>
__device__ inline unsigned place_in_tile(int row, int chunk) {
  return static_cast<unsigned>(row) * kRowBytes<kDim> + static_cast<unsigned>(chunk ^ (row % 8)) * 16;
}

/// Where a lane reads of the first 16 rows of a tile: as left operand, or transposed as right one (the rows
/// are the depth of the product).
template <int kDim>
__device__ inline unsigned left_place() {
  const int lane = lane_index();
  return place_in_tile<kDim>(lane % 16, lane / 16);
}
/// As right operand whose columns are the tile's rows.
template <int kDim>
__device__ inline unsigned right_place() {
  const int lane = lane_index();
  return place_in_tile<kDim>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}
/// The same in the 16 rows from `row`, a multiple of 8, and pair `pair` of chunks.
template <int kDim>
__device__ inline unsigned move_place(unsigned place, int row, int pair) {
  return (place ^ static_cast<unsigned>(32 * pair)) + static_cast<unsigned>(row) * kRowBytes<kDim>;
}

/// kRows rows of kDim elements to shared memory by all kThreads threads; rows from `count` on become zero.
template <int kDim, int kRows, int kThreads>
__device__ inline void copy_tile(unsigned tile, const Bf16* from, std::int64_t stride, int count) {
  constexpr int kChunks = kDim / 8;
  constexpr int kStep = kThreads / kChunks;  // rows at a time
  static_assert(kStep % 8 == 0 && kRows % kStep == 0);
  const int row = static_cast<int>(threadIdx.x) / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const unsigned to = tile + place_in_tile<kDim>(row, chunk);
  const Bf16* source = from + row * stride + chunk * 8;
#pragma unroll
  for (int i = 0; i < kRows / kStep; ++i) {
    const bool exists = row + i * kStep < count;
    copy_async<16>(to + static_cast<unsigned>(i * kStep) * kRowBytes<kDim>, exists ? source : from, exists);
    source += kStep * stride;
  }
}

/// sums [16 kM, 8 kN] = rows of one tile times rows of another: kDim products each.
template <int kDim, int kM, int kN>
__device__ inline void multiply_rows(float (&sums)[kM][kN][4], unsigned left, unsigned right) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][n][e] = 0;
#pragma unroll
  for (int pair = 0; pair < kDim / 16; ++pair) {
    Fragment a[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) a[m] = load_matrices(move_place<kDim>(left, 16 * m, pair));
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      const Fragment b = load_matrices(move_place<kDim>(right, 8 * n, pair));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add(sums[m][n], a[m], b.pair[0], b.pair[1]);
        multiply_add(sums[m][n + 1], a[m], b.pair[2], b.pair[3]);
      }
    }
  }
}

/// sums [16 kM, kDim] += a [16 kM, 16 kK] times the 16 kK rows of a tile.
template <int kDim, int kM, int kK>
__device__ inline void multiply_add_columns(float (&sums)[kM][kDim / 8][4], const Fragment (&a)[kM][kK],
                                            unsigned right) {
#pragma unroll
  for (int k = 0; k < kK; ++k)
#pragma unroll
    for (int pair = 0; pair < kDim / 16; ++pair) {
      const Fragment b = load_transposed(move_place<kDim>(right, 16 * k, pair));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add(sums[m][2 * pair], a[m][k], b.pair[0], b.pair[1]);
        multiply_add(sums[m][2 * pair + 1], a[m][k], b.pair[2], b.pair[3]);
      }
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
        out[m][k].pair[i] = to_bf16_pair(from[i % 2 * 2], from[i % 2 * 2 + 1]);
      }
}

/// A warp's sums [16 kM, kDim], row r times factor[r / 8] of the lane, to memory, by way of the rows `tile`
/// of shared memory that only this warp uses. Rows from `count` on do not exist.
template <int kDim, int kM>
__device__ inline void store_rows(const float (&sums)[kM][kDim / 8][4], const float (&factor)[2 * kM],
                                  unsigned char* tile, Bf16* to, std::int64_t stride, int count) {
  constexpr int kChunks = kDim / 8;
  const int lane = lane_index();
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kChunks; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * m + 8 * half + lane / 4;
        const float by = factor[2 * m + half];
        *reinterpret_cast<unsigned*>(tile + place_in_tile<kDim>(row, n) + lane % 4 * 4) =
            to_bf16_pair(sums[m][n][2 * half] * by, sums[m][n][2 * half + 1] * by);
      }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 * kM * kChunks / kWarp; ++i) {
    const int row = (i * kWarp + lane) / kChunks;
    const int chunk = (i * kWarp + lane) % kChunks;
    if (row < count)
      *reinterpret_cast<uint4*>(to + row * stride + chunk * 8) =
          *reinterpret_cast<const uint4*>(tile + place_in_tile<kDim>(row, chunk));
  }
}

}  // namespace tetrad::cuda
