// SPDX-License-Identifier: Apache-2.0
// All tensors in one launch: a row of blocks for each.

#include "tetrad/backend/cuda/layers/layers.h"

#include <cmath>
#include <vector>

#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/backend/cuda/layers/adamw_staging.h"
#include "tetrad/backend/cuda/layers/tensor_list.cuh"

namespace tetrad::cuda {
namespace {

constexpr unsigned kPieceBlocks = 1024;  // a piece has the device for itself

struct Rates {
  float learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale, first_correction,
      second_correction;
};

__device__ inline void update(const Rates& rates, float decay, float& weight, float gradient, float& m,
                              float& v) {
  gradient *= rates.gradient_scale;
  m = rates.beta1 * m + (1.0f - rates.beta1) * gradient;
  v = rates.beta2 * v + (1.0f - rates.beta2) * gradient * gradient;
  const float direction = m * rates.first_correction / (sqrtf(v * rates.second_correction) + rates.epsilon);
  weight -= rates.learning_rate * (direction + decay * weight);
}

/// All threads of a row of blocks.
__device__ inline void update_tensor(const AdamWTensor& tensor, const Rates& rates) {
  const float decay = tensor.decay ? rates.weight_decay : 0.0f;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  // Buffers are aligned to more than four floats.
  const std::int64_t quads = tensor.size / 4;
  for (std::int64_t i = first; i < quads; i += step) {
    float4 weight = reinterpret_cast<float4*>(tensor.weight)[i];
    const float4 gradient = reinterpret_cast<const float4*>(tensor.gradient)[i];
    float4 m = reinterpret_cast<float4*>(tensor.first_moment)[i];
    float4 v = reinterpret_cast<float4*>(tensor.second_moment)[i];
    update(rates, decay, weight.x, gradient.x, m.x, v.x);
    update(rates, decay, weight.y, gradient.y, m.y, v.y);
    update(rates, decay, weight.z, gradient.z, m.z, v.z);
    update(rates, decay, weight.w, gradient.w, m.w, v.w);
    reinterpret_cast<float4*>(tensor.weight)[i] = weight;
    reinterpret_cast<float4*>(tensor.first_moment)[i] = m;
    reinterpret_cast<float4*>(tensor.second_moment)[i] = v;
  }
  for (std::int64_t i = quads * 4 + first; i < tensor.size; i += step)
    update(rates, decay, tensor.weight[i], tensor.gradient[i], tensor.first_moment[i],
           tensor.second_moment[i]);
}

__global__ void adamw_kernel(const AdamWTensor* tensors, Rates rates) {
  update_tensor(tensors[blockIdx.y], rates);
}

__global__ void adamw_piece_kernel(AdamWTensor piece, Rates rates) { update_tensor(piece, rates); }

/// partial[tensor, block]: sums of squares of the block's elements.
__global__ void squares_kernel(const AdamWTensor* tensors, double* partial) {
  __shared__ double shared[kWarp];
  const AdamWTensor tensor = tensors[blockIdx.y];
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t quads = tensor.size / 4;
  double sum = 0;
  const auto add = [&](float g) { sum += static_cast<double>(g) * static_cast<double>(g); };
  for (std::int64_t i = first; i < quads; i += step) {
    const float4 gradient = reinterpret_cast<const float4*>(tensor.gradient)[i];
    add(gradient.x);
    add(gradient.y);
    add(gradient.z);
    add(gradient.w);
  }
  for (std::int64_t i = quads * 4 + first; i < tensor.size; i += step) add(tensor.gradient[i]);
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

}  // namespace

void adamw(Device& device, const AdamWStep& op) {
  if (op.tensors.empty()) return;
  const auto correction = [&](float beta) {
    return static_cast<float>(1.0 /
                              (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(op.step))));
  };
  const Rates rates{op.learning_rate,
                    op.beta1,
                    op.beta2,
                    op.epsilon,
                    op.weight_decay,
                    op.gradient_scale,
                    correction(op.beta1),
                    correction(op.beta2)};
  // The bus is what moments on the host wait for, so they begin first, and others are updated while the last
  // ones go back.
  std::vector<AdamWTensor> resident;
  MomentStaging* staging = nullptr;
  for (const AdamWTensor& tensor : op.tensors) {
    if (!tensor.moments_on_host || device.host_moments == HostMoments::mapped) {
      resident.push_back(tensor);
      continue;
    }
    staging = &device.kept<MomentStaging>();
    staging->step(device, tensor, [&](const AdamWTensor& piece) {
      adamw_piece_kernel<<<kPieceBlocks, kListThreads, 0, device.stream()>>>(piece, rates);
      check_launch();
    });
  }
  if (!resident.empty()) {
    const std::span<const AdamWTensor> tensors(resident);
    adamw_kernel<<<grid_for(tensors), kListThreads, 0, device.stream()>>>(upload(device, tensors), rates);
    check_launch();
  }
  if (staging != nullptr) staging->finish(device);
}

std::vector<double> squared_norms(Device& device, std::span<const AdamWTensor> tensors) {
  if (tensors.empty()) return {};
  const std::size_t count = tensors.size() * kBlocksPerTensor;
  auto* partial = device.scratch<double>(Device::partial_sums, static_cast<std::int64_t>(count));
  squares_kernel<<<grid_for(tensors), kListThreads, 0, device.stream()>>>(upload(device, tensors), partial);
  check_launch();
  std::vector<double> sums(count);
  check(
      cudaMemcpyAsync(sums.data(), partial, count * sizeof(double), cudaMemcpyDeviceToHost, device.stream()));
  device.synchronize();
  std::vector<double> norms(tensors.size(), 0.0);
  for (std::size_t i = 0; i < count; ++i) norms[i / kBlocksPerTensor] += sums[i];
  return norms;
}

}  // namespace tetrad::cuda
