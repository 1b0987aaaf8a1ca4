// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps of scan_gradients_mma.cu: what a block of 16 warps does for one head of a tile.

#include "tetrad/backend/cuda/mamba2/scan_mma.cuh"

namespace tetrad::cuda {

inline constexpr int kGradientThreads = 512;
inline constexpr int kGradientWarps = kGradientThreads / kWarp;
inline constexpr int kSegments = kGradientThreads / kTile;  //!< parts of a column of pairs, summed apart
inline constexpr int kSegment = kTile / kSegments;
inline constexpr int kQuarters = 4;

template <int kHeadDim, int kState>
struct GradientMemory {
  static constexpr int kParts = kHeadDim / 16;  //!< of the channels
  // What a group has.
  alignas(128) Bf16 b[SharedTile<kState>::size(kTile)];
  alignas(128) Bf16 c[SharedTile<kState>::size(kTile)];
  // What a head has, fetched while the head before it is worked on.
  alignas(128) Bf16 x[2][SharedTile<kHeadDim>::size(kTile)];
  alignas(128) Bf16 dy[2][SharedTile<kHeadDim>::size(kTile)];
  alignas(128) Bf16 state[2][SharedTile<kState>::size(kHeadDim)];   //!< before the tile
  alignas(128) Bf16 dstate[2][SharedTile<kState>::size(kHeadDim)];  //!< gradient of the state after the tile
  alignas(16) TileSteps steps[2];
  // What a head has while it is worked on.
  alignas(128) Bf16 mix[2][SharedTile<kTile>::size(kTile)];  //!< as the sum of two BF16 values
  alignas(16) float shares[kTile][kTile + 8];  //!< padded for the banks; dmix * products * decays, then their
                                               //!< sums down the columns
  float segments[kSegments][kTile];            //!< sums of pieces of those columns
  float dlog[kTile];              //!< gradients of the decays' logarithms, from pairs in the tile
  float later[kQuarters][kTile];  //!< shares through the state before, of quarters of the state …
  float earlier[kParts][kTile];   //!< … and after, of parts of the channels
  float d_sums[kTile / 16 * kParts];
  float across[2][kGradientWarps];  //!< state times dstate; of two turns, because one is read in the next
};

/// Where a thread works.
struct GradientPlace {
  int thread, lane, warp;
  int token;    //!< first of the warp's 16
  int quarter;  //!< which one of the other dimension
  int row;      //!< the lane's first row among the 16, the second is 8 below
  int pair;     //!< the lane's columns in a tile: this and the next

  explicit __device__ GradientPlace(int of_thread)
      : thread(of_thread),
        lane(thread % kWarp),
        warp(thread / kWarp),
        token(warp / kQuarters * 16),
        quarter(warp % kQuarters),
        row(lane / 4),
        pair(lane % 4 * 2) {}
  /// Whether the warp's 16 x 16 pairs of tokens have any s <= t.
  __device__ bool has_pairs() const { return quarter * 16 <= token; }
};

/// A warp's 16 x 16 pairs of tokens or tokens and channels, and its 16 tokens times a quarter of the state.
using PairStrip = float[2][4];
template <int kState>
using KeyStrip = float[kState / kQuarters / 8][4];

/// C . B^T.
template <int kHeadDim, int kState>
__device__ inline void multiply_keys(const GradientPlace& place,
                                     const GradientMemory<kHeadDim, kState>& memory, PairStrip& products) {
  if (!place.has_pairs()) return;
  const SharedTile<kState> b{const_cast<Bf16*>(memory.b), place.lane};
  const SharedTile<kState> c{const_cast<Bf16*>(memory.c), place.lane};
#pragma unroll
  for (int n = 0; n < kState; n += 32) {
    std::uint32_t left[4];
    std::uint32_t right[4];
    std::uint32_t other[4];
    c.first(left, place.token, n);
    c.first(right, place.token, n + 16);
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      b.second(other, 16 * place.quarter + 8 * tile, n);
      multiply_add(products[tile], left, other[0], other[1]);
      multiply_add(products[tile], right, other[2], other[3]);
    }
  }
}

/// The warp's share of state times dstate, whose elements lie in the same order.
template <int kHeadDim, int kState>
__device__ inline void multiply_states(int turn, GradientMemory<kHeadDim, kState>& memory) {
  constexpr int kVectors = kHeadDim * kState / 8;
  const auto* state = reinterpret_cast<const uint4*>(memory.state[turn % 2]);
  const auto* dstate = reinterpret_cast<const uint4*>(memory.dstate[turn % 2]);
  float across = 0;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kVectors; i += kGradientThreads) {
    const uint4 a = state[i];
    const uint4 b = dstate[i];
    across += first_of(a.x) * first_of(b.x) + second_of(a.x) * second_of(b.x) +
              first_of(a.y) * first_of(b.y) + second_of(a.y) * second_of(b.y);
    across += first_of(a.z) * first_of(b.z) + second_of(a.z) * second_of(b.z) +
              first_of(a.w) * first_of(b.w) + second_of(a.w) * second_of(b.w);
  }
  across = warp_sum(across);
  if (threadIdx.x % kWarp == 0) memory.across[turn % 2][threadIdx.x / kWarp] = across;
}

/// Two neighbours of a matrix that is the sum of two BF16 matrices.
__device__ inline void store_split(Bf16 (&to)[2][SharedTile<kTile>::size(kTile)], int row, int col,
                                   const float (&values)[2]) {
  const std::uint32_t high = pack_bf16(values[0], values[1]);
  SharedTile<kTile>{to[0], 0}.pair(row, col) = high;
  SharedTile<kTile>{to[1], 0}.pair(row, col) =
      pack_bf16(values[0] - first_of(high), values[1] - second_of(high));
}

/// With dmix = dy . x^T: mix, the products' gradient (added), and the shares of the steps.
template <int kHeadDim, int kState>
__device__ inline void differentiate_mix(const GradientPlace& place, int turn, const TileSteps& steps,
                                         GradientMemory<kHeadDim, kState>& memory, const PairStrip& products,
                                         PairStrip& dproducts) {
  if (!place.has_pairs()) return;
  const SharedTile<kHeadDim> x{memory.x[turn % 2], place.lane};
  const SharedTile<kHeadDim> dy{memory.dy[turn % 2], place.lane};
  PairStrip dmix = {};
#pragma unroll
  for (int p = 0; p < kHeadDim; p += 16) {
    std::uint32_t gradients[4];
    std::uint32_t inputs[4];
    dy.first(gradients, place.token, p);
    x.second_square(inputs, 16 * place.quarter, p);
    multiply_add(dmix[0], gradients, inputs[0], inputs[1]);
    multiply_add(dmix[1], gradients, inputs[2], inputs[3]);
  }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = place.token + place.row + 8 * half;
      const int s = 16 * place.quarter + 8 * tile + place.pair;
      float mix[2];
      float shares[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float decay = s + i <= t ? decay_between(steps.log[t], steps.log[s + i]) : 0.0f;
        const float product = products[tile][2 * half + i] * decay;
        const float gradient = dmix[tile][2 * half + i];
        mix[i] = product * steps.dt[s + i];
        dproducts[tile][2 * half + i] += gradient * (decay * steps.dt[s + i]);
        shares[i] = gradient * product;
      }
      *reinterpret_cast<float2*>(&memory.shares[t][s]) = {shares[0], shares[1]};
      store_split(memory.mix, t, s, mix);
    }
}

/// Sum over the four lanes that share a row, of both rows of the lane, to out[row].
__device__ inline void store_row_sums(const GradientPlace& place, const float (&sums)[2],
                                      float (&out)[kTile]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = sums[half];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if (place.pair == 0) out[place.token + place.row + 8 * half] = sum;
  }
}

/// dx = weight * (B . dstate^T) + D * dy + mix^T . dy, for the warp's tokens and a part of 16 channels.
template <int kHeadDim, int kState>
__device__ inline void differentiate_inputs(const GradientPlace& place, int part, int turn,
                                            const TileSteps& steps, float d,
                                            GradientMemory<kHeadDim, kState>& memory, PairStrip& dx) {
  const SharedTile<kState> b{memory.b, place.lane};
  const SharedTile<kState> dstate{memory.dstate[turn % 2], place.lane};
  const SharedTile<kHeadDim> x{memory.x[turn % 2], place.lane};
  const SharedTile<kHeadDim> dy{memory.dy[turn % 2], place.lane};
  const int channel = 16 * part;
#pragma unroll
  for (int n = 0; n < kState; n += 32) {
    std::uint32_t left[4];
    std::uint32_t right[4];
    std::uint32_t other[4];
    b.first(left, place.token, n);
    b.first(right, place.token, n + 16);
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      dstate.second(other, channel + 8 * tile, n);
      multiply_add(dx[tile], left, other[0], other[1]);
      multiply_add(dx[tile], right, other[2], other[3]);
    }
  }
  float shares[2] = {};
  float d_sum = 0;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int s = place.token + place.row + 8 * half;
      const std::uint32_t inputs = x.pair(s, channel + 8 * tile + place.pair);
      const std::uint32_t gradients = dy.pair(s, channel + 8 * tile + place.pair);
      float* values = dx[tile] + 2 * half;
      shares[half] += values[0] * first_of(inputs) + values[1] * second_of(inputs);
      d_sum += first_of(gradients) * first_of(inputs) + second_of(gradients) * second_of(inputs);
      values[0] = values[0] * steps.weight[s] + d * first_of(gradients);
      values[1] = values[1] * steps.weight[s] + d * second_of(gradients);
    }
  store_row_sums(place, shares, memory.earlier[part]);
  d_sum = warp_sum(d_sum);
  if (place.lane == 0) memory.d_sums[place.token / 16 * memory.kParts + part] = d_sum;
#pragma unroll
  for (int t = 0; t < kTile; t += 16) {
    if (t < place.token) continue;
    std::uint32_t other[4];
    dy.second_transposed(other, t, channel);
#pragma unroll
    for (auto& half : memory.mix) {
      std::uint32_t mix[4];
      SharedTile<kTile>{half, place.lane}.first_transposed(mix, t, place.token);
      multiply_add(dx[0], mix, other[0], other[1]);
      multiply_add(dx[1], mix, other[2], other[3]);
    }
  }
}

/// a . b for the warp's tokens and its quarter of the state.
template <int kHeadDim, int kState>
__device__ inline void multiply_state(const GradientPlace& place, const SharedTile<kHeadDim>& a,
                                      const SharedTile<kState>& b, KeyStrip<kState>& out) {
#pragma unroll
  for (int p = 0; p < kHeadDim; p += 16) {
    std::uint32_t left[4];
    a.first(left, place.token, p);
#pragma unroll
    for (int tile = 0; tile < kState / kQuarters / 8; tile += 2) {
      std::uint32_t other[4];
      b.second_transposed(other, p, place.quarter * (kState / kQuarters) + 8 * tile);
      multiply_add(out[tile], left, other[0], other[1]);
      multiply_add(out[tile + 1], left, other[2], other[3]);
    }
  }
}

/// What reaches C through the state before the tile, and B through the one after it.
template <int kHeadDim, int kState>
__device__ inline void differentiate_keys(const GradientPlace& place, int turn, const TileSteps& steps,
                                          GradientMemory<kHeadDim, kState>& memory, KeyStrip<kState>& db,
                                          KeyStrip<kState>& dc) {
  constexpr int kTiles = kState / kQuarters / 8;
  {
    KeyStrip<kState> from_state = {};
    multiply_state<kHeadDim, kState>(place, {memory.dy[turn % 2], place.lane},
                                     {memory.state[turn % 2], place.lane}, from_state);
    const SharedTile<kState> c{memory.c, place.lane};
    float shares[2] = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = place.token + place.row + 8 * half;
        const std::uint32_t queries = c.pair(t, place.quarter * (kState / kQuarters) + 8 * tile + place.pair);
        const float first = from_state[tile][2 * half] * steps.left[t];
        const float second = from_state[tile][2 * half + 1] * steps.left[t];
        dc[tile][2 * half] += first;
        dc[tile][2 * half + 1] += second;
        shares[half] += first * first_of(queries) + second * second_of(queries);
      }
    store_row_sums(place, shares, memory.later[place.quarter]);
  }
  KeyStrip<kState> from_state = {};
  multiply_state<kHeadDim, kState>(place, {memory.x[turn % 2], place.lane},
                                   {memory.dstate[turn % 2], place.lane}, from_state);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      db[tile][i] += from_state[tile][i] * steps.weight[place.token + place.row + i / 2 * 8];
}

/// The pairs' gradients of all heads, where mix was.
template <int kHeadDim, int kState>
__device__ inline void store_pairs(const GradientPlace& place, const PairStrip& dproducts,
                                   GradientMemory<kHeadDim, kState>& memory) {
  if (!place.has_pairs()) return;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      store_split(memory.mix, place.token + place.row + 8 * half, 16 * place.quarter + 8 * tile + place.pair,
                  {dproducts[tile][2 * half], dproducts[tile][2 * half + 1]});
}

/// dc += dproducts . B, db += dproducts^T . C.
template <int kHeadDim, int kState>
__device__ inline void differentiate_products(const GradientPlace& place,
                                              GradientMemory<kHeadDim, kState>& memory, KeyStrip<kState>& db,
                                              KeyStrip<kState>& dc) {
  const SharedTile<kState> b{memory.b, place.lane};
  const SharedTile<kState> c{memory.c, place.lane};
#pragma unroll 1  // registers are few, and this is done once
  for (int part = 0; part < 2; ++part)
#pragma unroll
    for (int k = 0; k < kTile; k += 16) {
      const SharedTile<kTile> pairs{memory.mix[part], place.lane};
      std::uint32_t straight[4];
      std::uint32_t transposed[4];
      if (k <= place.token) pairs.first(straight, place.token, k);
      if (k >= place.token) pairs.first_transposed(transposed, k, place.token);
#pragma unroll
      for (int tile = 0; tile < kState / kQuarters / 8; tile += 2) {
        const int n = place.quarter * (kState / kQuarters) + 8 * tile;
        std::uint32_t other[4];
        if (k <= place.token) {
          b.second_transposed(other, k, n);
          multiply_add(dc[tile], straight, other[0], other[1]);
          multiply_add(dc[tile + 1], straight, other[2], other[3]);
        }
        if (k >= place.token) {
          c.second_transposed(other, k, n);
          multiply_add(db[tile], transposed, other[0], other[1]);
          multiply_add(db[tile + 1], transposed, other[2], other[3]);
        }
      }
    }
}

}  // namespace tetrad::cuda
