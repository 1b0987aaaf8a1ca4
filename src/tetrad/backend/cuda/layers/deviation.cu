// SPDX-License-Identifier: Apache-2.0
// Three sums of each tensor in one pass over it. Gradients of a model are hundreds of megabytes: what is
// limited is reading them, so that f64 sums cost nothing.

#include "tetrad/backend/cuda/layers/layers.h"

#include <vector>

#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/backend/cuda/layers/tensor_list.cuh"

namespace tetrad::cuda {
namespace {

/// partial[tensor, block]: sums over the block's elements.
__global__ void deviations_kernel(const DeviationTensor* tensors, DeviationSums* partial) {
  __shared__ double shared[kWarp];
  const DeviationTensor tensor = tensors[blockIdx.y];
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  DeviationSums sums;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < tensor.size; i += step) {
    const float reference = tensor.reference == nullptr ? 0.0f : tensor.reference[i];
    const float deviation = tensor.value[i] - reference;
    if (tensor.sum != nullptr) tensor.sum[i] += deviation;
    const auto r = static_cast<double>(reference);
    const auto d = static_cast<double>(deviation);
    sums.reference += r * r;
    sums.product += r * d;
    sums.deviation += d * d;
  }
  sums.reference = block_sum(sums.reference, shared);
  sums.product = block_sum(sums.product, shared);
  sums.deviation = block_sum(sums.deviation, shared);
  if (threadIdx.x == 0) partial[blockIdx.y * gridDim.x + blockIdx.x] = sums;
}

}  // namespace

std::vector<DeviationSums> deviations(Device& device, std::span<const DeviationTensor> tensors) {
  if (tensors.empty()) return {};
  const std::size_t count = tensors.size() * kBlocksPerTensor;
  auto* partial = device.scratch<DeviationSums>(Device::partial_sums, static_cast<std::int64_t>(count));
  deviations_kernel<<<grid_for(tensors), kListThreads, 0, device.stream()>>>(upload(device, tensors),
                                                                             partial);
  check_launch();
  std::vector<DeviationSums> blocks(count);
  check(cudaMemcpyAsync(blocks.data(), partial, count * sizeof(DeviationSums), cudaMemcpyDeviceToHost,
                        device.stream()));
  device.synchronize();
  std::vector<DeviationSums> sums(tensors.size());
  for (std::size_t i = 0; i < count; ++i) sums[i / kBlocksPerTensor].add(blocks[i]);
  return sums;
}

}  // namespace tetrad::cuda
