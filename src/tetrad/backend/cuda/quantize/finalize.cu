// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/quantize/finalize.cuh"

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/quantize/kernels.h"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 1024;

/// One block of threads: there is nearly always nothing to do. `lower` brings the state back to zero.
__global__ void __launch_bounds__(kThreads) finalize_kernel(QuantProblem p, bool lower) {
  finalize_share(p, threadIdx.x, kThreads);
  __syncthreads();
  if (lower && threadIdx.x == 0) p.state->amax_bits = 0;
}

/// Two problems with one state.
__global__ void __launch_bounds__(kThreads)
    finalize_two_kernel(QuantProblem first, QuantProblem second, bool lower) {
  finalize_share(first, threadIdx.x, kThreads);
  finalize_share(second, threadIdx.x, kThreads);
  __syncthreads();
  if (lower && threadIdx.x == 0) first.state->amax_bits = 0;
}

bool is_flag(Device& device, const QuantState* state) {
  return reinterpret_cast<const std::uint32_t*>(state) == device.flag();
}

}  // namespace

void finalize(Device& device, const QuantProblem& problem) {
  launch(device, 1, kThreads, 0, finalize_kernel, problem, is_flag(device, problem.state));
}

void finalize(Device& device, const QuantProblem& first, const QuantProblem& second) {
  launch(device, 1, kThreads, 0, finalize_two_kernel, first, second, is_flag(device, first.state));
}

}  // namespace tetrad::cuda
