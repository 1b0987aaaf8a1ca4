#include "tetrad/backend/cuda/column_sums.h"

#include "tetrad/backend/cuda/launch.cuh"
#include "tetrad/backend/cuda/reduce.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kRowGroups = 8;

/// A block is 32 columns wide; its warps take rows in turn, and the first adds up what they found.
__global__ void column_sums_kernel(const float* partial, std::int64_t rows, std::int64_t cols, float* sums) {
  __shared__ float shared[kRowGroups][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t col = std::int64_t{blockIdx.x} * kWarp + lane;
  float sum = 0;
  if (col < cols)
    for (std::int64_t row = group; row < rows; row += kRowGroups) sum += partial[row * cols + col];
  shared[group][lane] = sum;
  __syncthreads();
  if (group != 0 || col >= cols) return;
  for (int other = 1; other < kRowGroups; ++other) sum += shared[other][lane];
  sums[col] += sum;
}

}  // namespace

void add_column_sums(Device& device, const float* partial, std::int64_t rows, std::int64_t cols,
                     float* sums) {
  launch(device, ceil_div(cols, std::int64_t{kWarp}), kRowGroups * kWarp, 0, column_sums_kernel, partial,
         rows, cols, sums);
}

}  // namespace tetrad::cuda
