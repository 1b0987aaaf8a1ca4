// SPDX-License-Identifier: Apache-2.0
// MS-EDEN after Hadamard transforms of 128, of BF16 rows and of a BF16 matrix that lies transposed. Threads
// hold blocks as those of nvfp4_rows.cu and patches as those of nvfp4_columns.cu do; the eight of a transform
// are lanes of a warp.

#include <algorithm>

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/quantize/dispatch.cuh"
#include "tetrad/backend/cuda/quantize/kernels.h"
#include "tetrad/backend/cuda/quantize/nvfp4_eden.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_row_blocks.cuh"
#include "tetrad/backend/cuda/quantize/threads.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kRowThreads = 256;
constexpr int kColumnThreads = 128;

/// Lanes from a part to its neighbour.
constexpr std::uint32_t kRowLanes = 2;
constexpr std::uint32_t kColumnLanes = RotatedPatches::kAbreast;

/// Every lane of the warp must come, to this and to the next.
template <std::uint32_t kLanes>
__device__ void rotate(std::uint32_t signs, std::uint32_t part, float (&v)[16]) {
  begin_rotation(v, signs);
#pragma unroll
  for (std::uint32_t step = 1; step < kParts; step *= 2) {
    const bool is_upper = (part & step) != 0;
#pragma unroll
    for (float& value : v)
      value = butterfly_between_parts(value, __shfl_xor_sync(kAllLanes, value, step * kLanes), is_upper);
  }
  finish_rotation(v);
}
/// Neighbours, then neighbouring pairs, …: a sum does not depend on which of two is added to the other.
template <std::uint32_t kLanes>
__device__ nvfp4::Projection sum_over_parts(nvfp4::Projection sum) {
#pragma unroll
  for (std::uint32_t step = 1; step < kParts; step *= 2)
    sum = sum_of(sum, {__shfl_xor_sync(kAllLanes, sum.square, step * kLanes),
                       __shfl_xor_sync(kAllLanes, sum.product, step * kLanes)});
  return sum;
}

/// Calls body(pair of blocks, the lane's own one rotated) for each batch of the warp.
template <typename Body>
__device__ void for_each_rotated_batch(const QuantProblem& p, const RowBlocks& blocks, const Body& body) {
  for_each_batch(blocks, [&](const PairOfBlocks& at) {
    std::uint32_t pairs[8];
    blocks.exchange_halves(blocks.load(at), pairs);
    const std::uint32_t part = blocks.own(at).block % kParts;
    float v[16];
    unpack_row(pairs, v);
    rotate<kRowLanes>(signs_of_part(p.signs, part), part, v);
    pack_row(v, pairs);
    body(at, pairs);
  });
}

__global__ void __launch_bounds__(kRowThreads) find_row_amax_kernel(QuantProblem p) {
  std::uint32_t largest = 0;
  for_each_rotated_batch(p, RowBlocks(p), [&](const PairOfBlocks&, const std::uint32_t(&pairs)[8]) {
    largest = max(largest, largest_magnitude(pairs));
  });
  raise_from_block(p.state, largest);
}

template <bool kOperand>
__global__ void __launch_bounds__(kRowThreads, 4) encode_rows_kernel(QuantProblem p) {
  if (is_first_thread()) *p.amax = p.tensor_amax();
  const RowBlocks blocks(p);
  const RowResults<kOperand> results(p, blocks);
  const nvfp4::TensorScale tensor = nvfp4::tensor_scale(p.tensor_amax(), p.scaling);
  for_each_rotated_batch(p, blocks, [&](const PairOfBlocks& at, std::uint32_t(&pairs)[8]) {
    const RowPart part = part_of_row(tensor, pairs);
    const float correction = nvfp4::correction(sum_over_parts<kRowLanes>(part.sum));
    const RowPlace own = blocks.own(at);
    const std::uint32_t random = p.random_byte_of_block(own.row, std::int64_t{own.block} * kGroup);
    results.store(at, encode_row_part(part, correction, random, pairs), pairs);
  });
}

__device__ void rotate_patch(const QuantProblem& p, std::uint32_t part, Patch& patch) {
  const std::uint32_t signs = signs_of_part(p.signs, part);
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    float left[16];
    float right[16];
    unpack_columns(patch, pair, left, right);
    rotate<kColumnLanes>(signs, part, left);
    rotate<kColumnLanes>(signs, part, right);
    pack_columns(left, right, pair, patch);
  }
}

/// Calls body(place, rotated patch) for each patch of this thread, with its whole warp.
template <typename Body>
__device__ void for_each_rotated_patch(const QuantProblem& p, const Body& body) {
  const RotatedPatches patches(p);
  const auto units = static_cast<std::uint32_t>(RotatedPatches::units(p));
  const std::uint32_t step = gridDim.x * (kColumnThreads / kWarp);
#pragma unroll 1
  for (std::uint32_t unit = (blockIdx.x * kColumnThreads + threadIdx.x) / kWarp; unit < units; unit += step) {
    const RotatedPatches::Place at = patches.place(unit, threadIdx.x % kWarp);
    Patch patch = patches.load(at);
    rotate_patch(p, at.part, patch);
    body(at, patch);
  }
}

__global__ void __launch_bounds__(kColumnThreads) find_column_amax_kernel(QuantProblem p) {
  std::uint32_t largest = 0;
  for_each_rotated_patch(p, [&](const RotatedPatches::Place&, const Patch& patch) {
    largest = max(largest, find_plain_amax_of_patch(patch));
  });
  raise_from_block(p.state, largest);
}

template <bool kOperand>
__global__ void __launch_bounds__(kColumnThreads, 4) encode_columns_kernel(QuantProblem p) {
  if (is_first_thread()) *p.amax = p.tensor_amax();
  const bool poisoned = p.is_poisoned();
  const nvfp4::TensorScale tensor = nvfp4::tensor_scale(p.tensor_amax(), p.scaling);
  for_each_rotated_patch(p, [&](const RotatedPatches::Place& at, Patch& patch) {
    PatchEncoding encoding = encoding_of<false>(patch, tensor, p.scaling);
    PatchSums sums = sums_of_patch(patch, encoding, tensor);
#pragma unroll
    for (nvfp4::Projection& column : sums.column) column = sum_over_parts<kColumnLanes>(column);
    correct_patch(p, at.patch, sums, encoding);
    constexpr PhiloxWords kNothingDrawn[kPatchCols] = {};
    if (at.inside)
      store_encoded_patch<false, kOperand>(p, at.patch, encoding, poisoned, kNothingDrawn, patch);
  });
}

std::int64_t row_blocks_of_threads(const Device& device, const QuantProblem& p) {
  return std::clamp<std::int64_t>(ceil_div(p.rows * (p.cols / kGroup), kRowThreads), 1,
                                  std::int64_t{8} * device.multiprocessors());
}
std::int64_t column_blocks_of_threads(const Device& device, const QuantProblem& p) {
  return std::clamp<std::int64_t>(ceil_div(RotatedPatches::units(p) * kWarp, kColumnThreads), 1,
                                  std::int64_t{16} * device.multiprocessors());
}

}  // namespace

bool suits_nvfp4_eden(const QuantProblem& p) {
  if (!suits_rotation_in_registers(p)) return false;
  constexpr std::int64_t kRowVector = 16;
  constexpr std::int64_t kColumnVector = kPatchCols * static_cast<std::int64_t>(sizeof(Bf16));
  if (p.is_row_major() && p.order == CodeOrder::row_major)
    return is_aligned(p.x, p.row_stride, sizeof(Bf16), kRowVector) &&
           has_few_items(p.rows * (p.cols / kGroup));
  return p.row_stride == 1 && p.order == CodeOrder::col_major && p.rows % kPatchCols == 0 &&
         is_aligned(p.x, p.col_stride, sizeof(Bf16), kColumnVector) &&
         has_few_items(RotatedPatches::units(p) * kWarp);
}

void find_nvfp4_eden_amax(Device& device, const QuantProblem& problem) {
  if (problem.is_row_major())
    launch(device, row_blocks_of_threads(device, problem), kRowThreads, 0, find_row_amax_kernel, problem);
  else
    launch(device, column_blocks_of_threads(device, problem), kColumnThreads, 0, find_column_amax_kernel,
           problem);
}

void encode_nvfp4_eden(Device& device, const QuantProblem& problem) {
  with_bool(problem.form == Form::operand, [&](auto operand) {
    if (problem.is_row_major())
      launch(device, row_blocks_of_threads(device, problem), kRowThreads, 0, encode_rows_kernel<operand>,
             problem);
    else
      launch(device, column_blocks_of_threads(device, problem), kColumnThreads, 0,
             encode_columns_kernel<operand>, problem);
  });
}

}  // namespace tetrad::cuda
