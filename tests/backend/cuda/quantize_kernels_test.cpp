// SPDX-License-Identifier: Apache-2.0
// The work of the CUDA quantizer's threads, done on the host one item after another, against the CPU backend:
// a machine without a GPU can test the arithmetic and the addresses.

#include "backend/cuda/quantize_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "oracle/inputs.h"
#include "support/cpu.h"
#include "support/quant_cases.h"
#include "tetrad/backend/cuda/quantize/decode_group.cuh"
#include "tetrad/backend/cuda/quantize/dispatch.cuh"
#include "tetrad/backend/cuda/quantize/generic_run.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_column_patches.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_rows.cuh"
#include "tetrad/core/threads.h"

namespace tetrad::cuda {
namespace {

using testing::Between;
using testing::expect_equal;
using testing::expect_operand;
using testing::find_amax_in_runs;
using testing::Input;
using testing::operand_of;
using testing::options_of;
using testing::prepare;
using testing::Result;
using testing::store_row_block;
using testing::with_run;
using tetrad::testing::cpu_backend;
using tetrad::testing::QuantCase;

Result quantize_in_runs(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options) {
  Result result;
  prepare(x, spec, options, result.tensor);
  QuantProblem p = make_problem(x, spec, options, result.tensor);
  Between between;
  between.attach(p);
  find_amax_in_runs(p);
  with_run(p, [&]<typename T, int kRun>(T, std::integral_constant<int, kRun>) {
    with_codec(spec.format, p.tensor_amax(), spec.scaling, [&]<typename Codec>(const Codec& codec) {
      store_tensor_results(p, codec);
      for (std::int64_t i = 0; i < p.runs(); ++i) encode_run<T, Codec, kRun>(p, codec, i);
      QuantPart part;
      for (std::int64_t i = 0; i < p.runs(); ++i) measure_run<T, Codec, kRun>(p, codec, false, i, part);
      if (!p.whole && !p.is_poisoned())
        for (std::size_t i = 0; i < between.block_amax.size(); ++i)
          part.zero_scale_blocks += has_zero_scale(p, codec, static_cast<std::int64_t>(i)) ? 1 : 0;
      result.stats = {.amax = std::bit_cast<float>(p.state->amax_bits),
                      .non_finite = part.non_finite,
                      .zero_scale_blocks = part.zero_scale_blocks,
                      .measured = part.measured,
                      .flushed = part.flushed,
                      .saturated = part.saturated,
                      .signal = part.signal,
                      .noise = part.noise,
                      .max_error = part.max_error};
    });
  });
  return result;
}

/// The kernels of nvfp4_rows.cu, but for the exchange between lanes.
Result quantize_in_row_blocks(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options) {
  Result result;
  prepare(x, spec, options, result.tensor);
  QuantProblem p = make_problem(x, spec, options, result.tensor);
  Between between;
  between.attach(p);
  const auto load = [&](std::int64_t row, std::int64_t col, std::uint32_t(&pairs)[8]) {
    std::memcpy(pairs, static_cast<const Bf16*>(p.x) + row * p.row_stride + col, sizeof(pairs));
  };
  with_encoding(p, [&](auto transform, auto stochastic, auto /*operand*/, auto choice) {
    std::uint32_t pairs[8];
    for (std::int64_t row = 0; row < p.rows; ++row)
      for (std::int64_t col = 0; col < p.cols; col += 16) {
        load(row, col, pairs);
        raise(&p.state->amax_bits, find_amax_of_row_block<transform>(pairs));
      }
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(p.tensor_amax(), p.scaling);
    for (std::int64_t row = 0; row < p.rows; ++row)
      for (std::int64_t col = 0; col < p.cols; col += 16) {
        load(row, col, pairs);
        const PhiloxWords random = p.random_words(row, col);
        const RowBlock block =
            encode_row_block<stochastic, transform, choice>(tensor, p.scaling, random, bias_of(p), pairs);
        store_row_block(p, row, col, block, pairs);
      }
  });
  return result;
}

/// The kernels of quantize_columns.cu.
Result quantize_in_patches(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options) {
  Result result;
  prepare(x, spec, options, result.tensor);
  QuantProblem p = make_problem(x, spec, options, result.tensor);
  Between between;
  between.attach(p);
  with_encoding(p, [&](auto transform, auto stochastic, auto operand, auto choice) {
    const ColumnPatches patches(p);
    for (std::uint32_t i = 0; i < patches.count(); ++i)
      raise(&p.state->amax_bits, find_amax_of_patch<transform>(patches.load(patches.place(i))));
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(p.tensor_amax(), p.scaling);
    for (std::uint32_t i = 0; i < patches.count(); ++i) {
      Patch patch = patches.load(patches.place(i));
      encode_patch<transform, stochastic, operand, choice>(p, tensor, p.is_poisoned(), patches.place(i),
                                                           patch);
    }
  });
  return result;
}

class QuantizeKernels : public ::testing::TestWithParam<QuantCase> {};

TEST_P(QuantizeKernels, RunsGiveTheCpusBytes) {
  const QuantSpec& spec = GetParam().spec;
  for (const std::string& kind : oracle::input_kinds())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool transposed : {false, true})
        for (const CodeOrder order : {CodeOrder::row_major, CodeOrder::col_major}) {
          SCOPED_TRACE(kind + " " + std::to_string(transposed) + " " +
                       std::to_string(static_cast<int>(order)));
          constexpr std::int64_t kRows = 32, kCols = 256;
          const Input x(oracle::rounded_to_bf16(oracle::make_input(kind, kRows, kCols)), kRows, kCols, dtype,
                        transposed);
          const QuantizeOptions options = options_of(order, Form::packed);
          QuantizedTensor expected;
          const QuantStats stats = cpu_backend().quantize(x.view, spec, options, expected);
          const Result actual = quantize_in_runs(x.view, spec, options);
          expect_equal(actual, expected);
          EXPECT_EQ(actual.stats.non_finite, stats.non_finite);
          if (stats.non_finite > 0) {  // the transform can overflow
            EXPECT_TRUE(std::isnan(*actual.tensor.device_amax.as<float>()));
            continue;
          }
          EXPECT_EQ(*actual.tensor.device_amax.as<float>(), expected.amax);
          EXPECT_EQ(actual.stats.amax, stats.amax);
          EXPECT_EQ(actual.stats.zero_scale_blocks, stats.zero_scale_blocks);
          EXPECT_EQ(actual.stats.measured, stats.measured);
          EXPECT_EQ(actual.stats.flushed, stats.flushed);
          EXPECT_EQ(actual.stats.saturated, stats.saturated);
          EXPECT_NEAR(actual.stats.signal, stats.signal, 1e-5 * stats.signal);
          EXPECT_NEAR(actual.stats.noise, stats.noise, 1e-5 * stats.noise + 1e-13 * stats.signal);
          if (spec.format != Format::fp8)
            expect_operand(quantize_in_runs(x.view, spec, options_of(order, Form::operand)).tensor, expected);
        }
}

TEST_P(QuantizeKernels, RunsGiveTheCpusBytesOnOddShapes) {
  const QuantSpec& spec = GetParam().spec;
  constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {
      {1, 16}, {5, 48}, {130, 400}, {144, 272}, {7, 384}};
  for (const auto& [rows, cols] : kShapes) {
    if ((spec.hadamard > 0 && cols % spec.hadamard != 0) || (spec.block.rows == 16 && rows % 16 != 0))
      continue;
    for (const bool transposed : {false, true})
      for (const CodeOrder order : {CodeOrder::row_major, CodeOrder::col_major}) {
        SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
        const Input x(oracle::make_input("heavy_tailed", rows, cols), rows, cols, DType::f32, transposed);
        QuantizeOptions options = options_of(order, Form::packed);
        options.amax = 3.0f;
        QuantizedTensor expected;
        cpu_backend().quantize(x.view, spec, options, expected);
        expect_equal(quantize_in_runs(x.view, spec, options), expected);
      }
  }
}

TEST_P(QuantizeKernels, BlocksInRegistersGiveTheCpusBytes) {
  const QuantSpec& spec = GetParam().spec;
  for (const std::string& kind : oracle::input_kinds())
    for (const bool transposed : {false, true}) {
      constexpr std::int64_t kRows = 32, kCols = 256;
      SCOPED_TRACE(kind + " " + std::to_string(transposed));
      const Input x(oracle::rounded_to_bf16(oracle::make_input(kind, kRows, kCols)), kRows, kCols,
                    DType::bf16, transposed);
      const CodeOrder order = transposed ? CodeOrder::col_major : CodeOrder::row_major;
      QuantizedTensor expected;
      cpu_backend().quantize(x.view, spec, options_of(order, Form::packed), expected);
      if (!suits_blocks_in_registers(make_problem(x.view, spec, options_of(order, Form::packed), expected)))
        return;
      if (std::isnan(expected.amax)) continue;  // another test's business
      const auto run = [&](Form form) {
        return transposed ? quantize_in_patches(x.view, spec, options_of(order, form))
                          : quantize_in_row_blocks(x.view, spec, options_of(order, form));
      };
      expect_equal(run(Form::packed), expected);
      expect_operand(run(Form::operand).tensor, expected);
    }
}

TEST_P(QuantizeKernels, InputThatIsNotFinitePoisons) {
  const QuantSpec& spec = GetParam().spec;
  constexpr std::int64_t kRows = 32, kCols = 256;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = oracle::make_input("gaussian", kRows, kCols);
    values[1234] = bad;
    const Input x(values, kRows, kCols, DType::bf16, true);
    const QuantizeOptions options = options_of(CodeOrder::col_major, Form::packed);
    QuantizedTensor expected;
    const QuantStats stats = cpu_backend().quantize(x.view, spec, options, expected);
    const Result actual = quantize_in_runs(x.view, spec, options);
    expect_equal(actual, expected);
    EXPECT_EQ(actual.stats.non_finite, stats.non_finite);
    EXPECT_TRUE(std::isnan(*actual.tensor.device_amax.as<float>()));
    if (!suits_blocks_in_registers(make_problem(x.view, spec, options, expected))) continue;
    expect_equal(quantize_in_patches(x.view, spec, options), expected);
    const Result operand = quantize_in_patches(x.view, spec, options_of(CodeOrder::col_major, Form::operand));
    for (const Bf16 value : operand.tensor.codes.span<Bf16>()) ASSERT_TRUE(std::isnan(value.to_f32()));
  }
}

DecodeProblem decode_problem(const QuantizedTensor& tensor) {
  DecodeProblem p;
  p.codes = tensor.codes.as<std::uint8_t>();
  p.scales = tensor.scales.data();
  p.rows = tensor.rows;
  p.cols = tensor.cols;
  p.order = tensor.order;
  p.has_tensor_scale = tensor.spec.format == Format::nvfp4;
  p.scaling = tensor.spec.scaling;
  p.amax = tensor.amax;
  if (tensor.spec.block.is_whole()) return p;
  p.scale_row_shift = tensor.spec.block.rows == 128 ? 7 : 0;
  p.scale_row_stride = tensor.order == CodeOrder::row_major ? tensor.scale_cols() : 1;
  p.scale_col_stride = tensor.order == CodeOrder::row_major ? 1 : tensor.scale_rows();
  return p;
}

TEST_P(QuantizeKernels, DecodeToTheCpusValues) {
  const QuantSpec& spec = GetParam().spec;
  constexpr std::int64_t kRows = 144, kCols = 384;
  const std::vector<float> x = oracle::make_input("heavy_tailed", kRows, kCols);
  for (const CodeOrder order : {CodeOrder::row_major, CodeOrder::col_major}) {
    QuantizedTensor tensor;
    cpu_backend().quantize(view_of(x.data(), kRows, kCols), spec, options_of(order, Form::packed), tensor);
    std::vector<float> expected(x.size());
    cpu_backend().dequantize(tensor, mutable_view_of(expected.data(), kRows, kCols));
    const DecodeProblem p = decode_problem(tensor);
    with_codec(spec.format, tensor.amax, spec.scaling, [&]<typename Codec>(const Codec&) {
      for (std::int64_t row = 0; row < kRows; ++row)
        for (std::int64_t col = 0; col < kCols; col += 16) {
          float values[16];
          decode_group<Codec>(p, row, col, p.tensor_decode(), values);
          const float* right = expected.data() + row * kCols + col;
          for (int i = 0; i < 16; ++i)
            ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(right[i]));
        }
    });
    if (spec.format != Format::nvfp4) continue;
    const std::vector<Bf16> operand = operand_of(tensor);
    if (order == CodeOrder::row_major) {
      for (std::int64_t first = 0; first < kRows * kCols; first += 8) {
        std::uint32_t codes = 0;
        std::memcpy(&codes, p.codes + first / 2, sizeof(codes));
        const auto scale = static_cast<std::uint8_t>(tensor.scales.data()[first / 16]);
        const ExpandedRow values = expand_row(codes, twice(E4m3::decode(scale)));
        ASSERT_EQ(std::memcmp(values.pairs, operand.data() + first, sizeof(values.pairs)), 0) << first;
      }
      continue;
    }
    for (std::int64_t pair = 0; pair < kCols / 2; ++pair)
      for (std::int64_t row = 0; row < kRows; row += 4) {
        std::uint32_t codes = 0;
        std::uint32_t scale_bytes = 0;
        std::uint32_t scales[2];
        std::memcpy(&codes, p.codes + pair * kRows + row, sizeof(codes));
        std::memcpy(&scale_bytes, tensor.scales.data() + pair / 8 * kRows + row, sizeof(scale_bytes));
        expand_scales(scale_bytes, scales);
        const ExpandedWord values = expand_word(codes, scales);
        ASSERT_EQ(std::memcmp(values.even, operand.data() + 2 * pair * kRows + row, sizeof(values.even)), 0);
        ASSERT_EQ(std::memcmp(values.odd, operand.data() + (2 * pair + 1) * kRows + row, sizeof(values.odd)),
                  0);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeKernels, ::testing::ValuesIn(tetrad::testing::quant_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(RandomKeyOfAProblem, TakesThePlaceOfSeedStepAndMicrobatch) {
  const Input input(oracle::make_input("gaussian", 32, 64), 32, 64, DType::bf16, false);
  QuantizedTensor tensor;
  RandomKey key{.seed = 0x123456789ABCDEFull, .step = 7, .microbatch = 3};
  const RandomStream random{.seed = 1, .step = 2, .microbatch = 4, .tensor = 42};
  const QuantSpec spec{.rounding = Rounding::stochastic};
  const QuantProblem by_key = make_problem(input.view, spec, {.random = random, .key = &key}, tensor);
  for (const std::uint32_t step : {7u, 8u}) {
    key.step = step;  // as it is when the kernel runs
    const QuantProblem by_value = make_problem(input.view, spec, {.random = random.with(key)}, tensor);
    for (const std::int64_t row : {0, 1, 31})
      for (const std::int64_t col : {0, 16, 48}) {
        EXPECT_EQ(by_key.random_words(row, col), by_value.random_words(row, col));
        EXPECT_EQ(by_key.random_words(row, col),
                  random.with(key).group(static_cast<std::uint32_t>((row * 64 + col) / 16)));
      }
  }
}

}  // namespace
}  // namespace tetrad::cuda
