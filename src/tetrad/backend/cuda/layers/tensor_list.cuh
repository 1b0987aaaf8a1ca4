// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations on a list of tensors in one launch: a row of blocks for each tensor.

#include <cstdint>
#include <span>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/backend/cuda/common/error.h"

namespace tetrad::cuda {

inline constexpr int kListThreads = 256;
inline constexpr unsigned kBlocksPerTensor = 128;

/// The list where kernels can read it, until the next one is.
template <typename T>
const T* upload(Device& device, std::span<const T> tensors) {
  auto* table = device.scratch<T>(Device::tables, static_cast<std::int64_t>(tensors.size()));
  check(
      cudaMemcpyAsync(table, tensors.data(), tensors.size_bytes(), cudaMemcpyHostToDevice, device.stream()));
  return table;
}

template <typename T>
dim3 grid_for(std::span<const T> tensors) {
  return {kBlocksPerTensor, static_cast<unsigned>(tensors.size()), 1};
}

}  // namespace tetrad::cuda
