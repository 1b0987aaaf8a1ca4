// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the tensor core kernels of the scan share. Where a block works on a state, it has two warps for each
// 16 channels of the head: warp w has channels 16 (w / 2) … and half w % 2 of the state, all in registers.

#include <type_traits>

#include "tetrad/backend/cuda/common/math.cuh"
#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/backend/cuda/common/shared_tile.cuh"
#include "tetrad/backend/cuda/mamba2/scan.cuh"

namespace tetrad::cuda {

template <int kHeadDim>
inline constexpr int kScanThreads = kHeadDim / 16 * 2 * kWarp;

/// Calls body(head_dim, state) with both as constants, for sizes that there are kernels for.
template <typename Body>
auto with_sizes(const Mamba2Shape& shape, const Body& body) {
  const auto with_head = [&](auto head_dim) {
    if (shape.state == 64) return body(head_dim, std::integral_constant<int, 64>{});
    return body(head_dim, std::integral_constant<int, 128>{});
  };
  if (shape.head_dim == 64) return with_head(std::integral_constant<int, 64>{});
  return with_head(std::integral_constant<int, 80>{});
}

/// A sum of logarithms in two f32: what the first has no digits for is in the second.
struct LongLog {
  float high, low;
};

/// Time steps and decays of one head over a tile. Decays are kept as logarithms to the base 2, and none is
/// less than 2^kLeastLog, which is zero, and the decay of a document's first token.
struct TileSteps {
  float raw[kTile];    //!< with dt_bias: what softplus is taken of; -infinity after the end of the sequence
  float dt[kTile];     //!< zeros after the end of the sequence
  LongLog log[kTile];  //!< sum of the logarithms 0 … t
  float left[kTile];   //!< product of decays 0 … t: what is left of the state before the tile
  float reaching[kTile];  //!< product of decays t + 1 …: what reaches the state after the tile
  float weight[kTile];    //!< that times dt

  static constexpr float kLeastLog = -160.0f;

  __device__ float total() const { return left[kTile - 1]; }
};

/// What steps and decays are computed from.
struct ScanSteps {
  View<const Bf16> dt;
  const float *dt_bias, *a_log;
  const std::int32_t* document_starts;  //!< or null
};
__host__ __device__ inline ScanSteps steps_of(const ScanViews<Bf16>& in) {
  return {in.dt, in.dt_bias, in.a_log, in.document_starts};
}

/// Product of decays s + 1 … t from the sums up to both. A huge step does not take the digits of the small
/// ones after it.
__device__ inline float decay_between(const LongLog& t, const LongLog& s) {
  return exp2_fast((t.high - s.high) + (t.low - s.low));
}

/// One warp's loads of the raw steps of a tile, two neighbours for each lane, long before they are used.
struct RawSteps {
  std::uint32_t of[2];  //!< the bits of an f32; of BF16's they need the upper half, and bit 0 says that a
                        //!< document begins: registers are few

  /// `row` is that of the tile's first token, the `time`-th of its sequence.
  __device__ void load(const ScanSteps& in, std::int64_t row, int time, std::int64_t head, int length) {
    const int t = static_cast<int>(threadIdx.x) % kWarp * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      of[i] = __float_as_uint(-INFINITY);  // softplus of it is 0
      if (t + i >= length) continue;
      of[i] = __float_as_uint(to_f32(in.dt.row(row + t + i)[head]));
      if (begins_document(in.document_starts, row + t + i, time + t + i)) of[i] |= 1u;
    }
  }

  __device__ void compute(const ScanSteps& in, std::int64_t head, TileSteps& out) const {
    constexpr float kLog2E = 1.44269504f;
    const float bias = in.dt_bias[head];
    const float rate = -expf(in.a_log[head]);
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    float dt[2];
    double log[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float raw = __uint_as_float(of[i] & 0xffff0000u) + bias;
      const bool begins = (of[i] & 1u) != 0;
      out.raw[2 * lane + i] = raw;
      dt[i] = softplus(raw);
      const float decay = dt[i] * rate * kLog2E;
      log[i] = begins || decay < TileSteps::kLeastLog ? TileSteps::kLeastLog : decay;
    }
    double sum = log[0] + log[1];
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const double before = __shfl_up_sync(kAllLanes, sum, distance);
      if (lane >= distance) sum += before;
    }
    const double before = __shfl_up_sync(kAllLanes, sum, 1);
    if (lane > 0) log[0] += before;
    log[1] += log[0];
    const double last = __shfl_sync(kAllLanes, log[1], kWarp - 1);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = 2 * lane + i;
      const auto high = static_cast<float>(log[i]);
      out.dt[t] = dt[i];
      out.log[t] = {high, static_cast<float>(log[i] - high)};
      out.left[t] = exp2_fast(high);
      out.reaching[t] = exp2_fast(static_cast<float>(last - log[i]));
      out.weight[t] = dt[i] * out.reaching[t];
    }
  }
};

/// A warp's share of a head's state, [head_dim, kState] in f32.
template <int kState>
struct StateShare {
  static constexpr int kTiles = kState / 2 / 8;  //!< results of 16 x 8
  float of[kTiles][4];

  static __device__ int first_row(int thread) { return thread / kWarp / 2 * 16; }
  static __device__ int first_col(int thread) { return thread / kWarp % 2 * (kState / 2); }

  /// Calls body(row, col, values[2]) for each pair of neighbours.
  template <typename Body>
  __device__ void for_each_pair(int thread, const Body& body) {
    const int lane = thread % kWarp;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        body(first_row(thread) + lane / 4 + 8 * half, first_col(thread) + 8 * tile + 2 * (lane % 4),
             of[tile] + 2 * half);
  }

  __device__ void set_zero() {
#pragma unroll
    for (auto& tile : of)
#pragma unroll
      for (float& value : tile) value = 0;
  }
  __device__ void load(int thread, const float* state) {
    for_each_pair(thread, [&](int row, int col, float* values) {
      const auto pair = *reinterpret_cast<const float2*>(state + row * kState + col);
      values[0] = pair.x;
      values[1] = pair.y;
    });
  }
  __device__ void store(int thread, float* state) {
    for_each_pair(thread, [&](int row, int col, float* values) {
      *reinterpret_cast<float2*>(state + row * kState + col) = {values[0], values[1]};
    });
  }
  __device__ void store(int thread, const SharedTile<kState>& out) {
    for_each_pair(thread, [&](int row, int col, float* values) {
      out.pair(row, col) = pack_bf16(values[0], values[1]);
    });
  }

  /// this = decay * this + sum over t of factors[t] * a[t] outer b[t]. The scaled a, which is f32, goes in as
  /// the sum of two BF16 values: states keep 16 bits.
  template <int kHeadDim>
  __device__ void advance(int thread, float decay, const SharedTile<kHeadDim>& a, const SharedTile<kState>& b,
                          const float* factors) {
    const int lane = thread % kWarp;
#pragma unroll
    for (auto& tile : of)
#pragma unroll
      for (float& value : tile) value *= decay;
#pragma unroll
    for (int t = 0; t < kTile; t += 16) {
      std::uint32_t high[4];
      std::uint32_t low[4];
      a.first_transposed(high, t, first_row(thread));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto factor = *reinterpret_cast<const float2*>(factors + t + i / 2 * 8 + 2 * (lane % 4));
        const float first = first_of(high[i]) * factor.x;
        const float second = second_of(high[i]) * factor.y;
        high[i] = pack_bf16(first, second);
        low[i] = pack_bf16(first - first_of(high[i]), second - second_of(high[i]));
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; tile += 2) {
        std::uint32_t operand[4];
        b.second_transposed(operand, t, first_col(thread) + 8 * tile);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          multiply_add(of[tile + i], high, operand[2 * i], operand[2 * i + 1]);
          multiply_add(of[tile + i], low, operand[2 * i], operand[2 * i + 1]);
        }
      }
    }
  }
};

/// Lane q of each four has word r of column q of a 4 x 4 matrix; it gets word r of row q.
__device__ inline void transpose_words(std::uint32_t (&words)[4]) {
  const bool upper = threadIdx.x % 4 >= 2;
  const bool odd = threadIdx.x % 2 == 1;
  const auto swap = [](bool is_second, int distance, std::uint32_t& first, std::uint32_t& second) {
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, is_second ? first : second, distance);
    (is_second ? first : second) = other;
  };
  swap(upper, 2, words[0], words[2]);
  swap(upper, 2, words[1], words[3]);
  swap(odd, 1, words[0], words[1]);
  swap(odd, 1, words[2], words[3]);
}

/// Four 16 x 8 tiles side by side, from tiles[kFirst] on, as BF16: the lane's upper row to `first`, the lower
/// to `second`, both addresses of the 32 columns; null: not written.
template <int kFirst = 0, int kTiles>
__device__ inline void store_rows(const float (&tiles)[kTiles][4], Bf16* first, Bf16* second) {
  static_assert(kFirst + 4 <= kTiles);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t words[4];
#pragma unroll
    for (int tile = 0; tile < 4; ++tile)
      words[tile] = pack_bf16(tiles[kFirst + tile][2 * half], tiles[kFirst + tile][2 * half + 1]);
    transpose_words(words);
    Bf16* row = half == 0 ? first : second;
    if (row != nullptr)
      *reinterpret_cast<uint4*>(row + threadIdx.x % 4 * 8) = {words[0], words[1], words[2], words[3]};
  }
}

/// The same for one tile and its 8 columns.
__device__ inline void store_tile(const float (&tile)[4], Bf16* first, Bf16* second) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Bf16* row = half == 0 ? first : second;
    if (row != nullptr)
      *reinterpret_cast<std::uint32_t*>(row + threadIdx.x % 4 * 2) =
          pack_bf16(tile[2 * half], tile[2 * half + 1]);
  }
}

/// The same for two tiles and their 16 columns.
__device__ inline void store_rows(const float (&tiles)[2][4], Bf16* first, Bf16* second) {
  const bool odd = threadIdx.x % 2 == 1;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t left = pack_bf16(tiles[0][2 * half], tiles[0][2 * half + 1]);
    const std::uint32_t right = pack_bf16(tiles[1][2 * half], tiles[1][2 * half + 1]);
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, odd ? left : right, 1);
    Bf16* row = half == 0 ? first : second;
    // even lanes write four columns of the left tile, odd ones of the right
    if (row != nullptr)
      *reinterpret_cast<uint2*>(row + threadIdx.x % 4 / 2 * 4 + (odd ? 8 : 0)) =
          odd ? uint2{other, right} : uint2{left, other};
  }
}

}  // namespace tetrad::cuda
