// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the tests of the CUDA quantizer's functions on the host have in common: inputs, buffers, comparisons.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "support/cpu.h"
#include "tetrad/backend/cpu/decode.h"
#include "tetrad/backend/cuda/quantize/generic_run.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_rows.cuh"
#include "tetrad/backend/cuda/quantize/problem.h"

namespace tetrad::cuda::testing {

inline constexpr RandomStream kRandom{.seed = 0x123456789ABCDEFull, .step = 7, .microbatch = 3, .tensor = 42};

struct Result {
  QuantizedTensor tensor;
  QuantStats stats;
};

/// Buffers of `tensor` as quantize() sizes them.
inline void prepare(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                    QuantizedTensor& out) {
  out.spec = spec;
  out.rows = x.rows;
  out.cols = x.cols;
  out.order = options.order;
  out.form = spec.format == Format::fp8 ? Form::packed : options.form;
  const auto elements = static_cast<std::size_t>(out.rows * out.cols);
  out.codes =
      Buffer(out.form == Form::operand ? elements * 2
                                       : static_cast<std::size_t>(out.rows * out.code_bytes_per_row()));
  out.scales = Buffer(static_cast<std::size_t>(out.scale_rows() * out.scale_cols()) *
                      (spec.format == Format::fp8 ? sizeof(float) : 1));
  out.device_amax = Buffer(sizeof(float));
  std::memset(out.codes.data(), 0xAA, out.codes.size());
  std::memset(out.scales.data(), 0xAA, out.scales.size());
}

/// What lies between the passes.
struct Between {
  QuantState state = {};
  std::vector<std::uint32_t> block_amax;
  std::vector<std::uint8_t> chosen;

  void attach(QuantProblem& p) {
    const auto blocks = static_cast<std::size_t>(p.block_rows_total * p.block_cols_total);
    block_amax.assign(blocks, 0);
    chosen.assign(blocks, 0);
    p.state = &state;
    p.block_amax = block_amax.data();
    p.chosen = chosen.data();
  }
};

/// Calls body(element, length) with the type and the length of the problem's runs as constants.
template <typename Body>
void with_run(const QuantProblem& p, const Body& body) {
  const auto with_length = [&](auto element) {
    if (p.run() == 16) body(element, std::integral_constant<int, 16>{});
    if (p.run() == 32) body(element, std::integral_constant<int, 32>{});
    if (p.run() == 64) body(element, std::integral_constant<int, 64>{});
    if (p.run() == 128) body(element, std::integral_constant<int, 128>{});
  };
  if (p.dtype == DType::bf16)
    with_length(Bf16{});
  else
    with_length(float{});
}

/// The first pass of the generic kernel, and the scales that it finds.
inline void find_amax_in_runs(const QuantProblem& p) {
  with_run(p, [&]<typename T, int kRun>(T, std::integral_constant<int, kRun>) {
    for (std::int64_t i = 0; i < p.runs(); ++i) raise(&p.state->amax_bits, find_amax_of_run<T, kRun>(p, i));
    if (depends_on_values(p.scaling) && !p.is_poisoned())
      for (std::int64_t i = 0; i < p.block_rows_total * (p.cols / kRun); ++i) find_scales<T, kRun>(p, i);
  });
}

/// What a lane of nvfp4_rows.cu stores for its block, without the exchange of halves.
inline void store_row_block(const QuantProblem& p, std::int64_t row, std::int64_t col, const RowBlock& block,
                            std::uint32_t (&pairs)[8]) {
  const std::int64_t at = (row * p.cols + col) / kGroup;
  if (p.form == Form::operand) {
    for (int half = 0; half < 2; ++half)
      row_operand(block.magnitudes[half], twice(E4m3::decode(block.scale_byte)), pairs + 4 * half);
    std::memcpy(static_cast<std::byte*>(p.codes) + at * 32, pairs, 32);
    return;
  }
  const std::uint32_t codes[2] = {row_codes(block.magnitudes[0], pairs),
                                  row_codes(block.magnitudes[1], pairs + 4)};
  std::memcpy(static_cast<std::byte*>(p.codes) + at * 8, codes, 8);
  static_cast<std::uint8_t*>(p.scales)[at] = static_cast<std::uint8_t>(block.scale_byte);
}

inline bool same(const Buffer& a, const Buffer& b) {
  return a.size() == b.size() && (a.size() == 0 || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

/// What an operand must hold, from the CPU's codes.
inline std::vector<Bf16> operand_of(const QuantizedTensor& packed) {
  std::vector<float> values(static_cast<std::size_t>(packed.rows * packed.cols));
  const bool row_major = packed.order == CodeOrder::row_major;
  cpu::decode(packed, {0, packed.rows, 0, packed.cols}, cpu::DecodeTo::operand, values.data(),
              row_major ? packed.cols : packed.rows);
  std::vector<Bf16> result;
  for (const float value : values) result.push_back(Bf16::from_f32(value));
  return result;
}

inline void expect_operand(const QuantizedTensor& actual, const QuantizedTensor& packed) {
  const std::vector<Bf16> expected = operand_of(packed);
  ASSERT_EQ(actual.codes.size(), expected.size() * sizeof(Bf16));
  EXPECT_EQ(std::memcmp(actual.codes.data(), expected.data(), actual.codes.size()), 0);
}

inline void expect_equal(const Result& actual, const QuantizedTensor& expected) {
  EXPECT_TRUE(same(actual.tensor.codes, expected.codes));
  EXPECT_TRUE(same(actual.tensor.scales, expected.scales));
}

/// An input as a quantizer gets it: [rows, cols] as consumed, lying by rows or transposed, with a gap.
struct Input {
  std::vector<float> f32;
  std::vector<Bf16> bf16;
  MatrixView view;

  Input(const std::vector<float>& x, std::int64_t rows, std::int64_t cols, DType dtype, bool transposed) {
    constexpr std::int64_t kGap = 8;
    const std::int64_t lines = transposed ? cols : rows;
    const std::int64_t length = transposed ? rows : cols;
    const std::int64_t stride = length + kGap;
    f32.assign(static_cast<std::size_t>(lines * stride), std::nanf(""));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t col = 0; col < cols; ++col)
        f32[static_cast<std::size_t>(transposed ? col * stride + row : row * stride + col)] =
            x[static_cast<std::size_t>(row * cols + col)];
    for (const float value : f32) bf16.push_back(Bf16::from_f32(value));
    const void* data = dtype == DType::bf16 ? static_cast<const void*>(bf16.data()) : f32.data();
    view = {data, dtype, rows, cols, transposed ? 1 : stride, transposed ? stride : 1};
  }
};

inline QuantizeOptions options_of(CodeOrder order, Form form) {
  return {
      .random = kRandom, .part = {48, 32, 8192}, .order = order, .form = form, .telemetry = Telemetry::full};
}

}  // namespace tetrad::cuda::testing
