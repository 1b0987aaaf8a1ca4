// SPDX-License-Identifier: Apache-2.0
// NVFP4 1x16 of BF16 rows: one thread holds a block. Pairs of lanes exchange halves of their blocks, so that
// every access to memory is 16 neighbouring bytes per lane.

#include <algorithm>

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/quantize/dispatch.cuh"
#include "tetrad/backend/cuda/quantize/kernels.h"
#include "tetrad/backend/cuda/quantize/nvfp4_row_blocks.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_rows.cuh"
#include "tetrad/backend/cuda/quantize/threads.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 256;

template <Transform kTransform>
__global__ void __launch_bounds__(kThreads) find_amax_kernel(QuantProblem p) {
  std::uint32_t largest = 0;
  const RowBlocks blocks(p);
  for_each_batch(blocks, [&](const PairOfBlocks& at) {
    std::uint32_t pairs[8];
    blocks.exchange_halves(blocks.load(at), pairs);
    largest = max(largest, find_amax_of_row_block<kTransform>(pairs));
  });
  raise_from_block(p.state, largest);
}

template <Transform kTransform, bool kStochastic, bool kOperand, bool kChoice>
__global__ void __launch_bounds__(kThreads, 4) encode_kernel(QuantProblem p) {
  if (is_first_thread()) *p.amax = p.tensor_amax();
  const RowBlocks blocks(p);
  const RowEncoder<kTransform, kStochastic, kOperand, kChoice> encoder(p, blocks);
  // The next blocks are on their way while these are encoded.
  const RowBlocks::Step step = blocks.step();
  std::uint32_t first = first_of_batch();
  if (first >= blocks.count()) return;
  PairOfBlocks at = blocks.pair_at(first);
  Halves halves = blocks.load(at);
  while (true) {
    first += batch_step();
    const bool more = first < blocks.count();
    const PairOfBlocks next = blocks.next(at, step);
    Halves coming = {};
    if (more) coming = blocks.load(next);
    encoder.encode(at, halves);
    if (!more) return;
    at = next;
    halves = coming;
  }
}

std::int64_t blocks_of_threads(const Device& device, const QuantProblem& p, std::int64_t per_multiprocessor) {
  return std::clamp<std::int64_t>(ceil_div(p.runs(), kThreads), 1,
                                  per_multiprocessor * device.multiprocessors());
}

}  // namespace

bool suits_nvfp4_rows(const QuantProblem& p) {
  constexpr std::int64_t kVector = 16;
  return suits_blocks_in_registers(p) && p.is_row_major() && p.order == CodeOrder::row_major &&
         is_aligned(p.x, p.row_stride, sizeof(Bf16), kVector) && has_few_items(p.runs());
}

void find_nvfp4_row_amax(Device& device, const QuantProblem& problem) {
  with_transform(problem, [&]<Transform kTransform>(TransformConstant<kTransform>) {
    launch(device, blocks_of_threads(device, problem, 8), kThreads, 0, find_amax_kernel<kTransform>, problem);
  });
}

void encode_nvfp4_rows(Device& device, const QuantProblem& problem) {
  with_encoding(problem, [&](auto transform, auto stochastic, auto operand, auto choice) {
    launch(device, blocks_of_threads(device, problem, 12), kThreads, 0,
           encode_kernel<transform, stochastic, operand, choice>, problem);
  });
}

}  // namespace tetrad::cuda
