#include "tetrad/backend/cuda/quantize_settle.cuh"

#include "tetrad/backend/cuda/launch.cuh"
#include "tetrad/backend/cuda/quantize_kernels.h"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) settle_kernel(QuantProblem p) {
  settle_share(p, std::int64_t{blockIdx.x} * kThreads + threadIdx.x, std::int64_t{gridDim.x} * kThreads);
}

__global__ void __launch_bounds__(kThreads) settle_kernel(QuantProblem first, QuantProblem second) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  settle_share(first, thread, threads);
  settle_share(second, thread, threads);
}

}  // namespace

void settle(Device& device, const QuantProblem& problem) {
  void (*kernel)(QuantProblem) = settle_kernel;
  launch(device, device.multiprocessors(), kThreads, 0, kernel, problem);
}

void settle(Device& device, const QuantProblem& first, const QuantProblem& second) {
  void (*kernel)(QuantProblem, QuantProblem) = settle_kernel;
  launch(device, device.multiprocessors(), kThreads, 0, kernel, first, second);
}

}  // namespace tetrad::cuda
