// SPDX-License-Identifier: Apache-2.0
// The largest magnitude of a matrix. The bits of |x| have its order, with NaN and infinity on top instead of
// lost, and a maximum does not depend on the order of threads.

#include <algorithm>

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/quantize/dispatch.cuh"
#include "tetrad/backend/cuda/quantize/kernels.h"
#include "tetrad/backend/cuda/quantize/nvfp4_block.cuh"
#include "tetrad/backend/cuda/quantize/threads.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 4;  // loads that a thread has under way

__device__ inline std::uint32_t larger_of(float /*type*/, std::uint32_t largest, std::uint32_t word) {
  return max(largest, word & 0x7FFFFFFFu);
}
__device__ inline std::uint32_t larger_of(Bf16 /*type*/, std::uint32_t largest, std::uint32_t word) {
  return max_halves(largest, word & kMagnitudesOfPair);
}
__device__ inline std::uint32_t as_f32_bits(float /*type*/, std::uint32_t largest) { return largest; }
__device__ inline std::uint32_t as_f32_bits(Bf16 /*type*/, std::uint32_t largest) {
  return max_halves(largest, largest >> 16) << 16;
}

/// `per_row` vectors of 16 bytes in each row of a matrix, `count` in all.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    vector_kernel(const T* x, std::int64_t stride, std::uint32_t per_row, std::uint32_t count,
                  QuantState* state) {
  constexpr int kPerVector = 16 / sizeof(T);
  const std::uint32_t step = gridDim.x * kThreads;
  std::uint32_t largest = 0;
  for (std::uint32_t first = blockIdx.x * kThreads + threadIdx.x; first < count; first += kInFlight * step) {
    uint4 vectors[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const std::uint32_t index = first + static_cast<std::uint32_t>(i) * step;
      const std::uint32_t row = per_row == count ? 0 : index / per_row;
      const T* at = x + row * stride + std::int64_t{index - row * per_row} * kPerVector;
      vectors[i] = index < count ? *reinterpret_cast<const uint4*>(at) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      for (const std::uint32_t word : {vectors[i].x, vectors[i].y, vectors[i].z, vectors[i].w})
        largest = larger_of(T{}, largest, word);
  }
  raise_from_block(state, as_f32_bits(T{}, largest));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    element_kernel(const T* x, std::int64_t stride, Extent extent, QuantState* state) {
  std::uint32_t largest = 0;
  for_each_group<1>(extent, [&](std::int64_t row, std::int64_t col) {
    largest = max(largest, std::bit_cast<std::uint32_t>(to_f32(x[row * stride + col])) & 0x7FFFFFFFu);
  });
  raise_from_block(state, largest);
}

}  // namespace

void find_plain_amax(Device& device, const QuantProblem& problem) {
  constexpr std::int64_t kVector = 16;
  constexpr std::int64_t kBlocksPerMultiprocessor = 8;
  const bool rows = problem.is_row_major();
  const Extent extent{rows ? problem.rows : problem.cols, rows ? problem.cols : problem.rows};
  const std::int64_t stride = rows ? problem.row_stride : problem.col_stride;
  with_type(problem.dtype, [&]<typename T>(T) {
    constexpr std::int64_t kPerVector = kVector / static_cast<std::int64_t>(sizeof(T));
    const auto* x = static_cast<const T*>(problem.x);
    const std::int64_t count = extent.rows * (extent.cols / kPerVector);
    const std::int64_t blocks = std::clamp<std::int64_t>(ceil_div(count, kThreads), 1,
                                                         kBlocksPerMultiprocessor * device.multiprocessors());
    const bool wide = extent.cols % kPerVector == 0 && is_aligned(x, stride, sizeof(T), kVector);
    if (!wide || !has_few_items(count)) {
      launch(device, blocks, kThreads, 0, element_kernel<T>, x, stride, extent, problem.state);
      return;
    }
    const bool contiguous = stride == extent.cols;
    launch(device, blocks, kThreads, 0, vector_kernel<T>, x, stride,
           static_cast<std::uint32_t>(contiguous ? count : extent.cols / kPerVector),
           static_cast<std::uint32_t>(count), problem.state);
  });
}

}  // namespace tetrad::cuda
