// SPDX-License-Identifier: Apache-2.0
// Kernels for every quantization there is; those that training spends its time in have faster ones beside.

#include <algorithm>
#include <type_traits>

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/quantize/generic_run.cuh"
#include "tetrad/backend/cuda/quantize/kernels.h"
#include "tetrad/backend/cuda/quantize/threads.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 128;

template <typename T, int kRun>
__global__ void find_amax_kernel(QuantProblem p) {
  std::uint32_t largest = 0;
  for_each_item(p.runs(),
                [&](std::int64_t item) { largest = max(largest, find_amax_of_run<T, kRun>(p, item)); });
  raise_from_block(p.state, largest);
}

template <typename T, int kRun>
__global__ void find_scales_kernel(QuantProblem p) {
  if (p.is_poisoned()) return;
  const std::int64_t items = p.block_rows_total * (p.cols / kRun);
  for_each_item(items, [&](std::int64_t item) { find_scales<T, kRun>(p, item); });
}

/// The codec of a problem in the second pass; formats are template parameters here.
template <typename Codec>
__device__ Codec codec_of(const QuantProblem& p) {
  if constexpr (std::is_same_v<Codec, Nvfp4Codec>)
    return {nvfp4::tensor_scale(p.tensor_amax(), p.scaling)};
  else if constexpr (std::is_same_v<Codec, Mxfp4Codec>)
    return {p.scaling};
  else
    return {};
}

template <typename T, typename Codec, int kRun>
__global__ void encode_kernel(QuantProblem p) {
  const Codec codec = codec_of<Codec>(p);
  if (is_first_thread()) store_tensor_results(p, codec);
  for_each_item(p.runs(), [&](std::int64_t item) { encode_run<T, Codec, kRun>(p, codec, item); });
}

template <typename T, typename Codec, int kRun>
__global__ void measure_kernel(QuantProblem p, bool sampled, QuantPart* parts) {
  const Codec codec = codec_of<Codec>(p);
  QuantPart part;
  for_each_item(p.runs(),
                [&](std::int64_t item) { measure_run<T, Codec, kRun>(p, codec, sampled, item, part); });
  if (!p.whole && !p.is_poisoned())
    for_each_item(p.block_rows_total * p.block_cols_total, [&](std::int64_t block) {
      part.zero_scale_blocks += has_zero_scale(p, codec, block) ? 1 : 0;
    });
  // Threads in order: few enough, and no sum depends on how they are scheduled.
  __shared__ QuantPart shared[kThreads];
  shared[threadIdx.x] = part;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int thread = 1; thread < kThreads; ++thread) part.merge(shared[thread]);
  parts[blockIdx.x] = part;
}

/// Calls body(T, run) with the element type and the length of a run.
template <typename Body>
void with_run(const QuantProblem& p, const Body& body) {
  const auto with_length = [&]<typename T>(T element) {
    switch (p.run()) {
      case 32:
        return body(element, std::integral_constant<int, 32>{});
      case 64:
        return body(element, std::integral_constant<int, 64>{});
      case 128:
        return body(element, std::integral_constant<int, 128>{});
      default:
        return body(element, std::integral_constant<int, kGroup>{});
    }
  };
  if (p.dtype == DType::bf16)
    with_length(Bf16{});
  else
    with_length(float{});
}

/// As above, with the codec.
template <typename Body>
void with_run_and_codec(const QuantProblem& p, const Body& body) {
  with_run(p, [&](auto element, auto run) {
    with_codec(p.format, 0.0f, p.scaling, [&](auto codec) { body(element, codec, run); });
  });
}

std::int64_t blocks_for(std::int64_t items) {
  constexpr std::int64_t kMost = 1 << 20;
  return std::clamp<std::int64_t>(ceil_div(items, kThreads), 1, kMost);
}

}  // namespace

void find_amax(Device& device, const QuantProblem& problem) {
  constexpr std::int64_t kBlocksPerMultiprocessor = 16;
  const std::int64_t most = kBlocksPerMultiprocessor * device.multiprocessors();
  with_run(problem, [&]<typename T, int kRun>(T, std::integral_constant<int, kRun>) {
    launch(device, std::min(blocks_for(problem.runs()), most), kThreads, 0, find_amax_kernel<T, kRun>,
           problem);
  });
}

void find_scales(Device& device, const QuantProblem& problem) {
  with_run(problem, [&]<typename T, int kRun>(T, std::integral_constant<int, kRun>) {
    launch(device, blocks_for(problem.block_rows_total * (problem.cols / kRun)), kThreads, 0,
           find_scales_kernel<T, kRun>, problem);
  });
}

void encode(Device& device, const QuantProblem& problem) {
  with_run_and_codec(
      problem, [&]<typename T, typename Codec, int kRun>(T, Codec, std::integral_constant<int, kRun>) {
        launch(device, blocks_for(problem.runs()), kThreads, 0, encode_kernel<T, Codec, kRun>, problem);
      });
}

void measure(Device& device, const QuantProblem& problem, bool sampled, QuantPart* parts) {
  with_run_and_codec(
      problem, [&]<typename T, typename Codec, int kRun>(T, Codec, std::integral_constant<int, kRun>) {
        launch(device, kQuantParts, kThreads, 0, measure_kernel<T, Codec, kRun>, problem, sampled, parts);
      });
}

}  // namespace tetrad::cuda
