// SPDX-License-Identifier: Apache-2.0
#pragma once
// Launching kernels, and the loop of those that do the same for every element of a matrix.

#include <cstdint>
#include <utility>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/common/kernel_attributes.h"
#include "tetrad/core/checked.h"
#include "tetrad/ops/check_rows.h"

namespace tetrad::cuda {

template <typename... Parameters, typename... Arguments>
void launch(Device& device, const dim3& grid, int threads, std::size_t shared_bytes,
            void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (grid.x == 0) return;
  kernel<<<grid, static_cast<unsigned>(threads), shared_bytes, device.stream()>>>(
      std::forward<Arguments>(arguments)...);
  check_launch();
}
template <typename... Parameters, typename... Arguments>
void launch(Device& device, std::int64_t blocks, int threads, std::size_t shared_bytes,
            void (*kernel)(Parameters...), Arguments&&... arguments) {
  launch(device, dim3(static_cast<unsigned>(blocks)), threads, shared_bytes, kernel,
         std::forward<Arguments>(arguments)...);
}

/// launch() of a kernel that may want more shared memory than the usual 48 KiB. How much it may have is an
/// attribute that all contexts share: nobody else must set it before the kernel is launched.
template <typename... Parameters, typename... Arguments>
void launch_with_shared(Device& device, std::int64_t blocks, int threads, std::size_t shared_bytes,
                        void (*kernel)(Parameters...), Arguments&&... arguments) {
  const KernelAttributesLock lock;
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  launch(device, blocks, threads, shared_bytes, kernel, std::forward<Arguments>(arguments)...);
}

struct Extent {
  std::int64_t rows, cols;
};

/// Calls body(row, col) for each group of kWidth columns, shared out among all threads of the grid.
template <int kWidth, typename Body>
__device__ inline void for_each_group(const Extent& extent, const Body& body) {
  const std::int64_t groups = extent.cols / kWidth;
  const std::int64_t total = extent.rows * groups;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += step)
    body(i / groups, i % groups * kWidth);
}

/// A grid for for_each_group().
template <int kWidth, typename... Parameters, typename... Arguments>
void launch_groups(Device& device, const Extent& extent, void (*kernel)(Parameters...),
                   Arguments&&... arguments) {
  constexpr int kThreads = 256;
  constexpr std::int64_t kBlocksPerMultiprocessor = 16;
  const std::int64_t blocks = ceil_div(extent.rows * (extent.cols / kWidth), std::int64_t{kThreads});
  const std::int64_t most = kBlocksPerMultiprocessor * device.multiprocessors();
  launch(device, blocks < most ? blocks : most, kThreads, 0, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace tetrad::cuda
