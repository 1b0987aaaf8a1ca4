// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/backend/cuda/layers/layers.h"
#include "tetrad/backend/cuda/layers/tensor_list.cuh"

namespace tetrad::cuda {
namespace {

/// bits[tensor] is raised from zero.
__global__ void amaxes_kernel(const Amaxes::Tensor* tensors, std::uint32_t* bits) {
  constexpr std::uint32_t kMagnitude = 0x7FFFFFFFu;
  const Amaxes::Tensor tensor = tensors[blockIdx.y];
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  std::uint32_t largest = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < tensor.size; i += step)
    largest = max(largest, __float_as_uint(tensor.values[i]) & kMagnitude);
  largest = largest_of_block(largest);
  if (threadIdx.x == 0 && largest > 0) atomicMax(bits + blockIdx.y, largest);
}

}  // namespace

void amaxes(Device& device, const Amaxes& op) {
  if (op.tensors.empty()) return;
  check(cudaMemsetAsync(op.bits, 0, op.tensors.size() * sizeof(std::uint32_t), device.stream()));
  amaxes_kernel<<<grid_for(op.tensors), kListThreads, 0, device.stream()>>>(upload(device, op.tensors),
                                                                            op.bits);
  check_launch();
}

}  // namespace tetrad::cuda
