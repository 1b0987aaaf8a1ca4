// SPDX-License-Identifier: Apache-2.0
#pragma once
// The second stage of gradients that every token shares: blocks leave sums over their own tokens, rows of
// [rows, cols], and these are added up in the order of the rows, whoever computed them.

#include <cstdint>

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/reduce.cuh"

namespace tetrad::cuda {

inline constexpr int kRowGroups = 8;

/// target(col) is where the sum of column `col` is added to. A block is 32 columns wide; its warps take rows
/// in turn, and the first adds up what they found.
template <typename Target>
__global__ void add_columns_kernel(const float* partial, std::int64_t rows, std::int64_t cols,
                                   Target target) {
  __shared__ float shared[kRowGroups][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t col = std::int64_t{blockIdx.x} * kWarp + lane;
  float sum = 0;
  if (col < cols) {
#pragma unroll 8
    for (std::int64_t row = group; row < rows; row += kRowGroups) sum += partial[row * cols + col];
  }
  shared[group][lane] = sum;
  __syncthreads();
  if (group != 0 || col >= cols) return;
  for (int other = 1; other < kRowGroups; ++other) sum += shared[other][lane];
  *target(col) += sum;
}

template <typename Target>
void add_columns(Device& device, const float* partial, std::int64_t rows, std::int64_t cols, Target target) {
  launch(device, ceil_div(cols, kWarp), kRowGroups * kWarp, 0, add_columns_kernel<Target>, partial, rows,
         cols, target);
}

/// Columns that lie one after the other.
struct ContiguousTarget {
  float* out;
  __device__ float* operator()(std::int64_t col) const { return out + col; }
};

}  // namespace tetrad::cuda
