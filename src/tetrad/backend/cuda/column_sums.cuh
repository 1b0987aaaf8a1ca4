#pragma once
// The second stage of gradients that every token shares: blocks leave sums over their own tokens, rows of
// [rows, cols], and these are added up in the order of the rows, whoever computed them.

#include <cstdint>

#include "tetrad/backend/cuda/launch.cuh"

namespace tetrad::cuda {

/// target(col) is where the sum of column `col` is added to.
template <typename Target>
__global__ void add_columns_kernel(const float* partial, std::int64_t rows, std::int64_t cols,
                                   Target target) {
  const std::int64_t col = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  float sum = 0;
#pragma unroll 8
  for (std::int64_t row = 0; row < rows; ++row) sum += partial[row * cols + col];
  *target(col) += sum;
}

template <typename Target>
void add_columns(Device& device, const float* partial, std::int64_t rows, std::int64_t cols, Target target) {
  constexpr int kThreads = 64;  // few, so that narrow matrices occupy many multiprocessors
  launch(device, ceil_div(cols, kThreads), kThreads, 0, add_columns_kernel<Target>, partial, rows, cols,
         target);
}

/// Columns that lie one after the other.
struct ContiguousTarget {
  float* out;
  __device__ float* operator()(std::int64_t col) const { return out + col; }
};

}  // namespace tetrad::cuda
