// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of any head_dim, element type and alignment, in f32 arithmetic: simple rather than fast.
//
// A warp has one row: a query, or in the backward pass also a key. A block has 8 such rows that meet the same
// others, 32 at a time, from shared memory: a lane has one of these for scores, and each 32nd column for
// sums.

#include "tetrad/backend/cuda/attention/mma.cuh"
#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/ops/attention.h"

namespace tetrad::cuda {

inline constexpr int kAnyRows = 8;  //!< rows of a block, one per warp
inline constexpr int kAnyThreads = kAnyRows * kWarp;
inline constexpr int kAnyOthers = kWarp;
inline constexpr int kAnyColumns = 256 / kWarp;  //!< the most that a lane has

struct AnyShape {
  int sequence, cached;
  int heads, kv_heads;
  int group;  //!< query heads of one key/value head
  int head_dim;
  float scale;
  const std::int32_t* document_starts;  //!< null, or [batch, sequence]

  /// Columns of a row in shared memory, a multiple of 4: the last ones may be zeros.
  __host__ __device__ int width() const { return (head_dim + 3) / 4 * 4; }
  /// Between rows of a tile, so that neighbouring lanes' rows lie in different banks.
  __host__ __device__ int stride() const { return width() + 4; }
  __host__ __device__ int tile_size() const { return kAnyOthers * stride(); }

  /// The first key that a query sees.
  __device__ int first_key(std::int64_t batch, int query) const {
    return document_starts == nullptr ? 0 : document_starts[batch * sequence + query];
  }
};

inline AnyShape any_shape(const AttentionShape& shape, std::int64_t cached,
                          const std::int32_t* document_starts) {
  return {static_cast<int>(shape.sequence),
          static_cast<int>(cached),
          static_cast<int>(shape.heads),
          static_cast<int>(shape.kv_heads),
          static_cast<int>(shape.heads / shape.kv_heads),
          static_cast<int>(shape.head_dim),
          shape.scale,
          document_starts};
}

/// A warp's row of the matrix to shared memory; zeros where it does not exist.
template <typename T>
__device__ inline void load_own_row(const AnyShape& shape, const T* from, bool exists, float* to) {
  for (int col = static_cast<int>(threadIdx.x) % kWarp; col < shape.width(); col += kWarp)
    to[col] = exists && col < shape.head_dim ? to_f32(from[col]) : 0;
  __syncwarp();
}

/// `count` rows of the matrix, at most kAnyOthers, to a tile; zeros in the other rows. The caller has seen to
/// it that nobody reads the tile, and has to wait for the other threads.
template <typename T, int kWidth>
__device__ inline void load_tile(const AnyShape& shape, const T* from, std::int64_t stride, int count,
                                 float* tile) {
  const int groups = shape.width() / kWidth;  // kWidth > 1: width() is head_dim
  for (int i = static_cast<int>(threadIdx.x); i < kAnyOthers * groups; i += kAnyThreads) {
    const int row = i / groups;
    const int col = i % groups * kWidth;
    float values[kWidth] = {};
    if (row < count && col < shape.head_dim) load(from + row * stride + col, values);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) tile[row * shape.stride() + col + c] = values[c];
  }
}

/// A warp's row times the lane's row of a tile.
__device__ inline float dot(const AnyShape& shape, const float* own, const float* tile) {
  const auto* a = reinterpret_cast<const float4*>(own);
  const auto* b =
      reinterpret_cast<const float4*>(tile + static_cast<int>(threadIdx.x) % kWarp * shape.stride());
  float4 sum{0, 0, 0, 0};
  for (int i = 0; i < shape.width() / 4; ++i) {
    sum.x += a[i].x * b[i].x;
    sum.y += a[i].y * b[i].y;
    sum.z += a[i].z * b[i].z;
    sum.w += a[i].w * b[i].w;
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

/// sums += each row of a tile, from `begin` to `end`, times the weight of the lane with its number.
__device__ inline void add_rows(const AnyShape& shape, const float* tile, float weight, int begin, int end,
                                float (&sums)[kAnyColumns]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int row = begin; row < end; ++row) {
    const float by = __shfl_sync(kAllLanes, weight, row);
#pragma unroll
    for (int i = 0; i < kAnyColumns; ++i)
      if (lane + i * kWarp < shape.width()) sums[i] += by * tile[row * shape.stride() + lane + i * kWarp];
  }
}

template <typename T>
__device__ inline void store_row(const AnyShape& shape, const float (&sums)[kAnyColumns], float factor,
                                 T* to) {
#pragma unroll
  for (int i = 0; i < kAnyColumns; ++i) {
    const int col = static_cast<int>(threadIdx.x) % kWarp + i * kWarp;
    if (col < shape.head_dim) assign(to[col], sums[i] * factor);
  }
}

/// The query of a warp: all heads of a group see the same keys, so that a block's queries are neighbours in
/// (token, head of the group).
struct OwnQuery {
  int token;
  std::int64_t head;
  bool exists;
  int last_token;  //!< the block's last

  __device__ OwnQuery(const AnyShape& shape, int block, int kv_head) {
    const int all = shape.sequence * shape.group;
    const int index = block * kAnyRows + static_cast<int>(threadIdx.x) / kWarp;
    exists = index < all;
    token = min(index, all - 1) / shape.group;
    head = kv_head * shape.group + min(index, all - 1) % shape.group;
    last_token = min(block * kAnyRows + kAnyRows - 1, all - 1) / shape.group;
  }
};

/// Calls body with the number of neighbours that can be loaded at once, of all views.
template <typename Body, typename... Views>
void with_any_width(const AttentionShape& shape, const Body& body, const Views&... views) {
  with_width(shape.head_dim % kWide == 0 && (is_wide(views) && ...), body);
}

}  // namespace tetrad::cuda
