// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradients of a head's time steps: the last part of its turn in scan_gradients_mma.cu.

#include "tetrad/backend/cuda/mamba2/scan_gradients_mma.cuh"

namespace tetrad::cuda {

// The gradient of the logarithm of decay r is the sum of dmix * mix over all t >= r > s. Three steps with
// barriers in between: sums of segments of columns, sums from every row down its column, sums of rows.

template <int kHeadDim, int kState>
__device__ inline void sum_segments(GradientMemory<kHeadDim, kState>& memory) {
  const int s = static_cast<int>(threadIdx.x) % kTile;
  const int segment = static_cast<int>(threadIdx.x) / kTile;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kSegment; ++i) {
    const int t = segment * kSegment + i;
    if (t >= s) sum += memory.shares[t][s];
  }
  memory.segments[segment][s] = sum;
}

template <int kHeadDim, int kState>
__device__ inline void sum_below(const TileSteps& steps, GradientMemory<kHeadDim, kState>& memory) {
  const int s = static_cast<int>(threadIdx.x) % kTile;
  const int segment = static_cast<int>(threadIdx.x) / kTile;
  float below = 0;
  for (int later = kSegments - 1; later > segment; --later) below += memory.segments[later][s];
#pragma unroll
  for (int i = kSegment - 1; i >= 0; --i) {
    const int t = segment * kSegment + i;
    if (t <= s) continue;
    below += memory.shares[t][s];
    memory.shares[t][s] = below * steps.dt[s];
  }
}

template <int kHeadDim, int kState>
__device__ inline void sum_decays(GradientMemory<kHeadDim, kState>& memory) {
  constexpr int kLanes = kGradientThreads / kTile;  // that share a row
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float sum = 0;
  for (int s = lane; s < row; s += kLanes) sum += memory.shares[row][s];
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (lane == 0) memory.dlog[row] = sum;
}

/// The gradients of two neighbouring tokens.
struct StepGradients {
  float ddt[2];   //!< gradient of dt but for the decays …
  float dlog[2];  //!< … and of the decays' logarithms
};

/// One warp, two neighbouring tokens for each lane: adds up all shares of the steps.
template <int kHeadDim, int kState>
__device__ inline StepGradients sum_step_gradients(int turn, const GradientMemory<kHeadDim, kState>& memory) {
  const TileSteps& steps = memory.steps[turn % 2];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float across = steps.total() * warp_sum(lane < kGradientWarps ? memory.across[turn % 2][lane] : 0.0f);
  StepGradients out;
  float later[2];
  float earlier[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    float share = 0;
    later[i] = 0;
    for (const auto& of_quarter : memory.later) later[i] += of_quarter[t];
    for (const auto& of_part : memory.earlier) share += of_part[t];
    float through = 0;
    for (int segment = 0; segment < kSegments; ++segment) through += memory.segments[segment][t];
    out.ddt[i] = through + steps.reaching[t] * share;
    earlier[i] = steps.weight[t] * share;
    out.dlog[i] = memory.dlog[t] + across;
  }
  // `later` counts for its token and all before it, `earlier` for all tokens after it
  float from_later = later[0] + later[1];
  float from_earlier = earlier[0] + earlier[1];
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const float after = __shfl_down_sync(kAllLanes, from_later, distance);
    const float before = __shfl_up_sync(kAllLanes, from_earlier, distance);
    if (lane + distance < kWarp) from_later += after;
    if (lane >= distance) from_earlier += before;
  }
  const float after = __shfl_down_sync(kAllLanes, from_later, 1);
  const float before = __shfl_up_sync(kAllLanes, from_earlier, 1);
  const float later_lanes = lane + 1 < kWarp ? after : 0.0f;
  const float earlier_lanes = lane > 0 ? before : 0.0f;
  out.dlog[0] += later_lanes + later[1] + later[0] + earlier_lanes;
  out.dlog[1] += later_lanes + later[1] + earlier_lanes + earlier[0];
  return out;
}

}  // namespace tetrad::cuda
