// SPDX-License-Identifier: Apache-2.0
// For a chunk of tokens: logits by one product, then a block per token turns its row of logits into a loss
// and into the gradient of the logits, then two more products. Logits exist for one chunk at a time.

#include "tetrad/backend/cuda/layers/layers.h"

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/backend/cuda/gemm/gemm.h"
#include "tetrad/core/tensor.h"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 1024;

/// What is known of the values seen so far: their maximum and the sum of exp(value - maximum).
struct Softmax {
  float maximum;
  float sum;
};

__device__ inline Softmax combine(Softmax a, Softmax b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  // A part that saw nothing has the maximum -inf, and exp(-inf - -inf) would be NaN.
  const auto rescaled = [&](Softmax s) { return s.sum == 0.0f ? 0.0f : s.sum * expf(s.maximum - maximum); };
  return {maximum, rescaled(a) + rescaled(b)};
}

__device__ inline Softmax block_softmax(Softmax value, Softmax* shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto over_warp = [](Softmax s) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      s = combine(
          s, {__shfl_xor_sync(kAllLanes, s.maximum, distance), __shfl_xor_sync(kAllLanes, s.sum, distance)});
    return s;
  };
  value = over_warp(value);
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  return over_warp(lane < kThreads / kWarp ? shared[lane] : Softmax{-INFINITY, 0.0f});
}

/// One block per token. The row of logits is read once and kept in shared memory if it fits (kResident), else
/// read again. `all_dlogits` may be null.
template <typename T, int kWidth, bool kResident>
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(const float* all_logits, std::int64_t vocab, const std::int32_t* targets, float* losses,
                   float gradient_scale, float z_loss, T* all_dlogits) {
  extern __shared__ __align__(16) float row[];
  __shared__ Softmax shared[kWarp];
  const std::int64_t token = blockIdx.x;
  const float* logits = all_logits + token * vocab;
  const std::int32_t target = targets[token];
  const bool counts = target != CrossEntropy::kIgnore;
  Softmax seen{-INFINITY, 0.0f};
  bool any_nan = false;
  for (std::int64_t i = std::int64_t{threadIdx.x} * kWidth; i < vocab; i += std::int64_t{kThreads} * kWidth) {
    float value[kWidth];
    load(logits + i, value);
    if constexpr (kResident) store(row + i, value);
    float largest = value[0];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      any_nan |= isnan(value[k]);
      largest = fmaxf(largest, value[k]);
    }
    if (largest > seen.maximum) {
      seen.sum = seen.sum == 0.0f ? 0.0f : seen.sum * expf(seen.maximum - largest);
      seen.maximum = largest;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) seen.sum += expf(value[k] - seen.maximum);
  }
  if (any_nan) seen = {INFINITY, NAN};
  seen = block_softmax(seen, shared);
  const float log_sum = isnan(seen.sum) ? NAN : seen.maximum + logf(seen.sum);
  if (threadIdx.x == 0) {
    // An id outside the vocabulary has no logit.
    const float own = target >= 0 && target < vocab ? logits[target] : NAN;
    losses[token] = counts ? log_sum - own : 0.0f;
  }
  if (all_dlogits == nullptr) return;
  T* dlogits = all_dlogits + token * vocab;
  const float scale = counts ? gradient_scale : 0.0f;
  const float share = 1.0f + 2.0f * z_loss * log_sum;  // 1 without a z-loss
  // Each thread reads back what it wrote itself: no barrier is needed.
  for (std::int64_t i = std::int64_t{threadIdx.x} * kWidth; i < vocab; i += std::int64_t{kThreads} * kWidth) {
    float value[kWidth];
    load((kResident ? row : logits) + i, value);
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      value[k] = (expf(value[k] - log_sum) * share - (i + k == target ? 1.0f : 0.0f)) * scale;
    store(dlogits + i, value);
  }
}

/// Launches softmax_kernel for `count` tokens.
template <typename T, int kWidth>
void softmax(Device& device, std::int64_t count, const float* logits, std::int64_t vocab,
             const std::int32_t* targets, float* losses, float gradient_scale, float z_loss, T* dlogits) {
  const std::size_t row_bytes = static_cast<std::size_t>(vocab) * sizeof(float);
  constexpr std::size_t kOwn = 1024;  // what the kernel has besides the row
  if (dlogits == nullptr || row_bytes + kOwn > device.properties().sharedMemPerBlockOptin) {
    launch(device, count, kThreads, 0, softmax_kernel<T, kWidth, false>, logits, vocab, targets, losses,
           gradient_scale, z_loss, dlogits);
    return;
  }
  launch_with_shared(device, count, kThreads, row_bytes, softmax_kernel<T, kWidth, true>, logits, vocab,
                     targets, losses, gradient_scale, z_loss, dlogits);
}

}  // namespace

void cross_entropy(Device& device, const CrossEntropy& op) {
  check(op);
  const std::int64_t vocab = op.head.rows;
  const std::int64_t tokens = op.hidden.rows;
  const std::int64_t chunk = loss_chunk(tokens, vocab);
  const bool backward = op.dhidden.data != nullptr;
  const auto element = static_cast<std::int64_t>(bits_of(op.hidden.dtype) / 8);
  std::byte* memory = device.scratch(
      Device::logits, static_cast<std::size_t>(chunk * vocab * (4 + (backward ? element : 0))));
  auto* logits = reinterpret_cast<float*>(memory);
  std::byte* dlogits = backward ? memory + chunk * vocab * 4 : nullptr;
  for (std::int64_t first = 0; first < tokens; first += chunk) {
    const std::int64_t count = std::min(chunk, tokens - first);
    const MatrixView hidden = rows(op.hidden, first, count);
    gemm(device, hidden, op.head, mutable_view_of(logits, count, vocab), Accumulate::no);
    with_type(op.hidden.dtype, [&]<typename T>(T) {
      // Four neighbours at a time where every row begins at a multiple of four.
      const auto run = vocab % 4 == 0 ? softmax<T, 4> : softmax<T, 1>;
      run(device, count, logits, vocab, op.targets + first, op.losses + first, op.gradient_scale, op.z_loss,
          reinterpret_cast<T*>(dlogits));
    });
    if (!backward) continue;
    const MatrixView gradient{dlogits, op.hidden.dtype, count, vocab, vocab, 1};
    gemm(device, gradient, GemmOperand(op.head).transposed(), rows(op.dhidden, first, count), Accumulate::no);
    gemm(device, GemmOperand(gradient).transposed(), GemmOperand(hidden).transposed(),
         mutable_view_of(op.dhead, vocab, op.hidden.cols), Accumulate::yes);
  }
}

}  // namespace tetrad::cuda
