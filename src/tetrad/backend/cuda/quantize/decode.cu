// SPDX-License-Identifier: Apache-2.0
// Dequantization, and the expansion of packed codes to the BF16 values that a product reads.

#include "tetrad/backend/cuda/quantize/decode.h"

#include <algorithm>
#include <type_traits>

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/quantize/decode_group.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kElements = 16;
constexpr int kRowElements = 8;  // of a thread, where rows are expanded

bool is_aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

int shift_of(std::int64_t extent) {
  int shift = 0;
  while (std::int64_t{1} << shift < extent) ++shift;
  return shift;
}

DecodeProblem make_problem(const QuantizedTensor& tensor) {
  DecodeProblem p;
  p.codes = tensor.codes.as<std::uint8_t>();
  p.scales = tensor.scales.data();
  p.rows = tensor.rows;
  p.cols = tensor.cols;
  p.order = tensor.order;
  p.form = tensor.form;
  p.scaling = tensor.spec.scaling;
  p.device_amax = tensor.device_amax.size() > 0 ? tensor.device_amax.as<float>() : nullptr;
  p.amax = tensor.amax;
  if (tensor.spec.block.is_whole()) return p;  // one scale everywhere
  p.scale_row_shift = tensor.spec.format == Format::fp8 ? shift_of(tensor.spec.block.rows) : 0;
  p.scale_row_stride = tensor.order == CodeOrder::row_major ? tensor.scale_cols() : 1;
  p.scale_col_stride = tensor.order == CodeOrder::row_major ? 1 : tensor.scale_rows();
  return p;
}

/// Into `out` row-major, or column-major without gaps.
template <typename Codec, typename T>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(DecodeProblem p, T* out, std::int64_t row_stride, std::int64_t col_stride) {
  const float factor = p.tensor_decode();
  const std::int64_t groups = p.cols / kElements;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.rows * groups; i += step) {
    // Neighbouring threads write neighbours.
    const std::int64_t row = col_stride == 1 ? i / groups : i % p.rows;
    const std::int64_t col = (col_stride == 1 ? i % groups : i / p.rows) * kElements;
    float values[kElements];
    decode_group<Codec>(p, row, col, factor, values);
#pragma unroll
    for (int j = 0; j < kElements; ++j) assign(out[row * row_stride + (col + j) * col_stride], values[j]);
  }
}

template <typename Codec, typename T>
void launch_decode(Device& device, const DecodeProblem& p, T* out, std::int64_t row_stride,
                   std::int64_t col_stride) {
  constexpr std::int64_t kMost = 1 << 20;
  const std::int64_t blocks =
      std::min(ceil_div(p.rows * (p.cols / kElements), std::int64_t{kThreads}), kMost);
  launch(device, blocks, kThreads, 0, decode_kernel<Codec, T>, p, out, row_stride, col_stride);
}

/// NVFP4, row-major: a thread has eight columns of a row, four bytes, and writes 16 bytes beside those of its
/// neighbours: weights that are kept as codes take this way to every product, and it is as fast as memory.
__global__ void __launch_bounds__(kThreads) expand_rows_kernel(DecodeProblem p, Bf16* out) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.rows * p.cols / kRowElements) return;
  // Blocks of 16 lie one after another, also from row to row.
  const std::uint8_t scale = static_cast<const std::uint8_t*>(p.scales)[index / (kElements / kRowElements)];
  const ExpandedRow values =
      expand_row(reinterpret_cast<const std::uint32_t*>(p.codes)[index], twice(E4m3::decode(scale)));
  reinterpret_cast<uint4*>(out)[index] = {values.pairs[0], values.pairs[1], values.pairs[2], values.pairs[3]};
}

/// NVFP4, column-major: a thread has 16 columns of four rows, bytes [8][4], and writes [16][4] values.
__global__ void __launch_bounds__(kThreads) expand_columns_kernel(DecodeProblem p, Bf16* out) {
  const auto per_line = static_cast<std::uint32_t>(p.rows / 4);
  const std::uint32_t count = per_line * static_cast<std::uint32_t>(p.cols / kElements);
  const std::uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= count) return;
  const std::uint32_t block = index / per_line;
  const std::int64_t row = std::int64_t{index - block * per_line} * 4;
  const auto word_at = [](const void* bytes, std::int64_t at) {
    return *reinterpret_cast<const std::uint32_t*>(static_cast<const std::uint8_t*>(bytes) + at);
  };
  std::uint32_t codes[kElements / 2];
#pragma unroll
  for (int k = 0; k < kElements / 2; ++k)
    codes[k] = word_at(p.codes, (std::int64_t{block} * (kElements / 2) + k) * p.rows + row);
  std::uint32_t scales[2];
  expand_scales(word_at(p.scales, block * p.rows + row), scales);
  Bf16* first = out + std::int64_t{block} * kElements * p.rows + row;
#pragma unroll
  for (int k = 0; k < kElements / 2; ++k) {
    const ExpandedWord values = expand_word(codes[k], scales);
    *reinterpret_cast<uint2*>(first + (2 * k) * p.rows) = {values.even[0], values.even[1]};
    *reinterpret_cast<uint2*>(first + (2 * k + 1) * p.rows) = {values.odd[0], values.odd[1]};
  }
}

}  // namespace

void decode_values(Device& device, const QuantizedTensor& tensor, const MutableMatrixView& out) {
  DecodeProblem problem = make_problem(tensor);
  problem.has_tensor_scale = tensor.spec.format == Format::nvfp4;
  with_type(out.dtype, [&]<typename T>(T) {
    with_codec(tensor.spec.format, 0.0f, tensor.spec.scaling, [&]<typename Codec>(const Codec&) {
      launch_decode<Codec>(device, problem, static_cast<T*>(out.data), out.row_stride, std::int64_t{1});
    });
  });
}

void decode_operand(Device& device, const QuantizedTensor& tensor, Bf16* out) {
  DecodeProblem problem = make_problem(tensor);
  if (tensor.spec.block.is_whole()) problem.scales = device.one();  // the tensor's is in alpha
  const bool row_major = tensor.order == CodeOrder::row_major;
  const bool is_nvfp4 = tensor.spec.format == Format::nvfp4;
  const auto expand = [&](auto* kernel, std::int64_t threads) {
    launch(device, ceil_div(threads, std::int64_t{kThreads}), kThreads, 0, kernel, problem, out);
  };
  if (is_nvfp4 && row_major && is_aligned(problem.codes, sizeof(std::uint32_t)) &&
      is_aligned(out, sizeof(uint4)))
    return expand(expand_rows_kernel, problem.rows * problem.cols / kRowElements);
  const std::int64_t threads = problem.rows / 4 * (problem.cols / kElements);
  if (is_nvfp4 && !row_major && problem.rows % 4 == 0 && is_aligned(out, sizeof(uint2)) &&
      threads < std::int64_t{1} << 31)
    return expand(expand_columns_kernel, threads);
  with_codec(tensor.spec.format, 0.0f, tensor.spec.scaling, [&]<typename Codec>(const Codec&) {
    launch_decode<Codec>(device, problem, out, row_major ? tensor.cols : 1, row_major ? 1 : tensor.rows);
  });
}

}  // namespace tetrad::cuda
