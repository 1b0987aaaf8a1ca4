// SPDX-License-Identifier: Apache-2.0
// All tensors in one launch: a row of blocks for each.

#include "tetrad/backend/cuda/layers/layers.h"

#include <type_traits>
#include <vector>

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/backend/cuda/layers/adamw_staging.h"
#include "tetrad/backend/cuda/layers/tensor_list.cuh"

namespace tetrad::cuda {
namespace {

constexpr unsigned kPieceBlocks = 1024;  // a piece has the device for itself

/// What all tensors of a step share.
struct Update {
  AdamWRates rates;
  std::uint64_t seed;
  std::int64_t step;
};

/// kWidth elements from `at` on: four, from a multiple of four, or one.
template <typename Moment, int kWidth>
__device__ inline void update_elements(const AdamWTensor& tensor, const Update& update, std::int64_t at) {
  auto* const first = static_cast<Moment*>(tensor.first_moment) + at;
  auto* const second = static_cast<Moment*>(tensor.second_moment) + at;
  const float decay = tensor.decay ? update.rates.weight_decay : 0.0f;
  float weight[kWidth], gradient[kWidth], m[kWidth], v[kWidth];
  load(tensor.weight + at, weight);
  load(tensor.gradient + at, gradient);
  load(first, m);
  load(second, v);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) adamw_update(update.rates, decay, gradient[i], weight[i], m[i], v[i]);
  if constexpr (std::is_same_v<Moment, Bf16>) {
    const std::int64_t element = tensor.first + at;
    const PhiloxWords words = MomentRounding(update.seed, update.step, tensor.parameter).words(element);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const std::uint32_t word = words[kWidth == 1 ? element % MomentRounding::kGroup : i];
      m[i] = MomentRounding::round_first(m[i], word).to_f32();
      v[i] = MomentRounding::round_second(v[i], word).to_f32();
    }
  }
  store(tensor.weight + at, weight);
  store(first, m);
  store(second, v);
}

/// All threads of a row of blocks.
template <typename Moment>
__device__ inline void update_all(const AdamWTensor& tensor, const Update& update) {
  constexpr int kWidth = 4;  // buffers are aligned to more than four floats
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t quads = tensor.size / kWidth;
  for (std::int64_t i = first; i < quads; i += step)
    update_elements<Moment, kWidth>(tensor, update, kWidth * i);
  for (std::int64_t i = quads * kWidth + first; i < tensor.size; i += step)
    update_elements<Moment, 1>(tensor, update, i);
}

__device__ inline void update_tensor(const AdamWTensor& tensor, const Update& update) {
  if (tensor.moments == DType::bf16)
    update_all<Bf16>(tensor, update);
  else
    update_all<float>(tensor, update);
}

__global__ void adamw_kernel(const AdamWTensor* tensors, Update update) {
  const AdamWTensor tensor = tensors[blockIdx.y];
  update_tensor(tensor, update);
}

__global__ void adamw_piece_kernel(AdamWTensor piece, Update update) { update_tensor(piece, update); }

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
  const Update update{rates_of(op), op.seed, op.step};
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
      adamw_piece_kernel<<<kPieceBlocks, kListThreads, 0, device.stream()>>>(piece, update);
      check_launch();
    });
  }
  if (!resident.empty()) {
    const std::span<const AdamWTensor> tensors(resident);
    adamw_kernel<<<grid_for(tensors), kListThreads, 0, device.stream()>>>(upload(device, tensors), update);
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
