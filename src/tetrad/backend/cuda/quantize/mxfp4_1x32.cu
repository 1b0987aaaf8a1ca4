// SPDX-License-Identifier: Apache-2.0
// MXFP4 1x32 of BF16 or f32: its rows without a transform, its columns with one of 16 or 32 (BF16) or
// without, in one pass over the values.

#include "tetrad/backend/cuda/quantize/mxfp4_1x32.cuh"

#include <algorithm>
#include <type_traits>

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/quantize/dispatch.cuh"
#include "tetrad/backend/cuda/quantize/kernels.h"
#include "tetrad/backend/cuda/quantize/threads.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kStripThreads = 128;

/// The threads that share a block lie side by side, and a row's parts are a multiple of them.
template <typename T, bool kStochastic, bool kOperand>
__global__ void __launch_bounds__(kThreads) encode_rows_kernel(QuantProblem p) {
  const auto per_row = static_cast<std::uint32_t>(p.cols / kMxPart);
  const std::uint32_t count = static_cast<std::uint32_t>(p.rows) * per_row;
  std::uint32_t largest = 0;
  // Whole warps go round together, for they exchange maxima.
  for (std::uint32_t first = blockIdx.x * kThreads; first < count; first += gridDim.x * kThreads) {
    const std::uint32_t index = first + threadIdx.x;
    const bool inside = index < count;
    const std::uint32_t row = index / per_row;
    const std::uint32_t part = index - row * per_row;
    // Those outside read something, which they must not be counted for.
    MxPart<T> values(static_cast<const T*>(p.x) +
                     (inside ? row * p.row_stride + std::int64_t{part} * kMxPart : 0));
    std::uint32_t amax = inside ? values.take_amax() : 0;
#pragma unroll
    for (int distance = 1; distance < kMxThreads; distance *= 2)
      amax = max(amax, __shfl_xor_sync(kAllLanes, amax, distance));
    largest = max(largest, amax);
    if (inside) mx_store_part<kStochastic, kOperand>(p, row, part, amax, values);
  }
  raise_from_block(p.state, largest);
}

template <typename T, int kHadamard, bool kStochastic, bool kOperand>
__global__ void __launch_bounds__(kStripThreads) encode_strips_kernel(QuantProblem p) {
  const ColumnStrips<T> strips(p);
  std::uint32_t largest = 0;
#pragma unroll 1
  for (std::uint32_t i = blockIdx.x * kStripThreads + threadIdx.x; i < strips.count();
       i += gridDim.x * kStripThreads) {
    const StripPlace at = strips.place(i);
    Strip<T> strip = strips.load(at);
    largest = max(largest, encode_strip<kHadamard, kStochastic, kOperand>(p, at, strip));
  }
  raise_from_block(p.state, largest);
}

/// Calls body(hadamard) with a constant.
template <typename Body>
void with_hadamard(int size, const Body& body) {
  if (size == 0)
    body(std::integral_constant<int, 0>{});
  else if (size == 16)
    body(std::integral_constant<int, 16>{});
  else
    body(std::integral_constant<int, 32>{});
}

std::int64_t blocks_of_threads(const Device& device, std::int64_t items, int threads) {
  constexpr std::int64_t kBlocksPerMultiprocessor = 32;
  return std::clamp<std::int64_t>(ceil_div(items, std::int64_t{threads}), 1,
                                  kBlocksPerMultiprocessor * device.multiprocessors());
}

}  // namespace

bool suits_mxfp4(const QuantProblem& p) {
  if (p.format != Format::mxfp4 || p.block_row_shift != 0 || p.cols % mxfp4::kBlock != 0) return false;
  const bool bf16 = p.dtype == DType::bf16;
  const std::int64_t element = bf16 ? sizeof(Bf16) : sizeof(float);
  if (p.is_row_major())
    return p.hadamard == 0 && p.order == CodeOrder::row_major && is_aligned(p.x, p.row_stride, element, 16) &&
           has_few_items(p.rows * (p.cols / kMxPart));
  return (p.hadamard == 0 || (bf16 && (p.hadamard == 16 || p.hadamard == 32))) &&
         p.order == CodeOrder::col_major && p.rows % 2 == 0 &&
         is_aligned(p.x, p.col_stride, element, 2 * element) &&
         has_few_items(p.rows / 2 * (p.cols / mxfp4::kBlock));
}

void encode_mxfp4(Device& device, const QuantProblem& problem) {
  const std::int64_t parts = problem.rows * (problem.cols / kMxPart);
  const std::int64_t strips = problem.rows / 2 * (problem.cols / mxfp4::kBlock);
  const auto start = [&](auto kernel, std::int64_t items, int threads) {
    launch(device, blocks_of_threads(device, items, threads), threads, 0, kernel, problem);
  };
  with_bool(problem.is_stochastic(), [&](auto stochastic) {
    with_bool(problem.form == Form::operand, [&](auto operand) {
      with_type(problem.dtype, [&]<typename T>(T) {
        if (problem.is_row_major())
          start(encode_rows_kernel<T, stochastic, operand>, parts, kThreads);
        else if constexpr (std::is_same_v<T, Bf16>)
          with_hadamard(problem.hadamard, [&](auto size) {
            start(encode_strips_kernel<T, size, stochastic, operand>, strips, kStripThreads);
          });
        else
          start(encode_strips_kernel<T, 0, stochastic, operand>, strips, kStripThreads);
      });
    });
  });
  finalize(device, problem);
}

}  // namespace tetrad::cuda
