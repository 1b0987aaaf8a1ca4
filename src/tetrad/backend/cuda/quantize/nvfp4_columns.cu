// SPDX-License-Identifier: Apache-2.0
// NVFP4 1x16 of a BF16 matrix that lies transposed: blocks run down the rows of memory. One thread holds 16
// rows of four columns, so that the transform and the block maxima stay in its registers and nothing is
// transposed.

#include <algorithm>

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/quantize/dispatch.cuh"
#include "tetrad/backend/cuda/quantize/kernels.h"
#include "tetrad/backend/cuda/quantize/nvfp4_column_patches.cuh"
#include "tetrad/backend/cuda/quantize/threads.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 128;

template <Transform kTransform>
__global__ void __launch_bounds__(kThreads) find_amax_kernel(QuantProblem p) {
  const ColumnPatches patches(p);
  std::uint32_t largest = 0;
  for (std::uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < patches.count(); i += gridDim.x * kThreads)
    largest = max(largest, find_amax_of_patch<kTransform>(patches.load(patches.place(i))));
  raise_from_block(p.state, largest);
}

template <Transform kTransform, bool kStochastic, bool kOperand, bool kChoice>
__global__ void __launch_bounds__(kThreads, 4) encode_kernel(QuantProblem p) {
  const ColumnPatches patches(p);
  if (is_first_thread()) *p.amax = p.tensor_amax();
  const bool poisoned = p.is_poisoned();
  const nvfp4::TensorScale tensor = nvfp4::tensor_scale(p.tensor_amax(), p.scaling);
#pragma unroll 1
  for (std::uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < patches.count();
       i += gridDim.x * kThreads) {
    const PatchPlace at = patches.place(i);
    Patch patch = patches.load(at);
    encode_patch<kTransform, kStochastic, kOperand, kChoice>(p, tensor, poisoned, at, patch);
  }
}

std::int64_t patches_of(const QuantProblem& p) { return p.rows / kPatchCols * (p.cols / kPatchRows); }

std::int64_t blocks_of_threads(const Device& device, const QuantProblem& p, std::int64_t per_multiprocessor) {
  return std::clamp<std::int64_t>(ceil_div(patches_of(p), kThreads), 1,
                                  per_multiprocessor * device.multiprocessors());
}

}  // namespace

bool suits_nvfp4_columns(const QuantProblem& p) {
  constexpr std::int64_t kVector = kPatchCols * static_cast<std::int64_t>(sizeof(Bf16));
  return suits_blocks_in_registers(p) && p.row_stride == 1 && p.order == CodeOrder::col_major &&
         p.rows % kPatchCols == 0 && is_aligned(p.x, p.col_stride, sizeof(Bf16), kVector) &&
         has_few_items(patches_of(p));
}

void find_nvfp4_column_amax(Device& device, const QuantProblem& problem) {
  const std::int64_t blocks = blocks_of_threads(device, problem, 24);
  with_transform(problem, [&]<Transform kTransform>(TransformConstant<kTransform>) {
    launch(device, blocks, kThreads, 0, find_amax_kernel<kTransform>, problem);
  });
}

void encode_nvfp4_columns(Device& device, const QuantProblem& problem) {
  const std::int64_t blocks = blocks_of_threads(device, problem, 16);
  with_encoding(problem, [&](auto transform, auto stochastic, auto operand, auto choice) {
    launch(device, blocks, kThreads, 0, encode_kernel<transform, stochastic, operand, choice>, problem);
  });
}

}  // namespace tetrad::cuda
