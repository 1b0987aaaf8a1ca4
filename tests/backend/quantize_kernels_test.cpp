// The work of the CUDA quantizer's threads, done on the host one item after another, against the CPU backend:
// a machine without a GPU can tell whether the arithmetic and the addresses are right.

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "oracle/inputs.h"
#include "support/quant_cases.h"
#include "tetrad/backend/cpu/decode.h"
#include "tetrad/backend/cpu/quantize.h"
#include "tetrad/backend/cuda/column_patches.cuh"
#include "tetrad/backend/cuda/decode_group.cuh"
#include "tetrad/backend/cuda/quantize_dispatch.cuh"
#include "tetrad/backend/cuda/quantize_mx.cuh"
#include "tetrad/backend/cuda/quantize_rows.cuh"
#include "tetrad/backend/cuda/quantize_run.cuh"
#include "tetrad/backend/cuda/quantize_settle.cuh"
#include "tetrad/backend/cuda/quantize_tile.cuh"
#include "tetrad/core/threads.h"

namespace tetrad::cuda {
namespace {

using tetrad::testing::QuantCase;

constexpr RandomStream kRandom{.seed = 0x123456789ABCDEFull, .step = 7, .microbatch = 3, .tensor = 42};

struct Result {
  QuantizedTensor tensor;
  QuantStats stats;
};

/// Buffers of `tensor` as quantize() sizes them.
void prepare(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
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

/// What lies between the passes.
struct Between {
  QuantState state = {};
  std::vector<std::uint32_t> block_amax;
  std::vector<std::uint8_t> stretched;

  void attach(QuantProblem& p) {
    const auto blocks = static_cast<std::size_t>(p.block_rows_total * p.block_cols_total);
    block_amax.assign(blocks, 0);
    stretched.assign(blocks, 0);
    p.state = &state;
    p.block_amax = block_amax.data();
    p.stretched = stretched.data();
  }
};

void find_amax_in_runs(const QuantProblem& p) {
  with_run(p, [&]<typename T, int kRun>(T, std::integral_constant<int, kRun>) {
    for (std::int64_t i = 0; i < p.runs(); ++i) raise(&p.state->amax_bits, find_amax_of_run<T, kRun>(p, i));
    if (p.adaptive && !p.is_poisoned())
      for (std::int64_t i = 0; i < p.block_rows_total * (p.cols / kRun); ++i) choose_stretch<T, kRun>(p, i);
  });
}

Result quantize_in_runs(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options) {
  Result result;
  prepare(x, spec, options, result.tensor);
  QuantProblem p = make_problem(x, spec, options, result.tensor);
  Between between;
  between.attach(p);
  find_amax_in_runs(p);
  with_run(p, [&]<typename T, int kRun>(T, std::integral_constant<int, kRun>) {
    with_codec(spec.format, p.tensor_amax(), spec.adaptive, [&]<typename Codec>(const Codec& codec) {
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

/// The kernels of quantize_rows.cu, but for the exchange between lanes.
Result quantize_in_row_blocks(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options) {
  Result result;
  prepare(x, spec, options, result.tensor);
  QuantProblem p = make_problem(x, spec, options, result.tensor);
  Between between;
  between.attach(p);
  const auto load = [&](std::int64_t row, std::int64_t col, std::uint32_t(&pairs)[8]) {
    std::memcpy(pairs, static_cast<const Bf16*>(p.x) + row * p.row_stride + col, sizeof(pairs));
  };
  with_encoding(p, [&](auto transform, auto stochastic, auto operand) {
    std::uint32_t pairs[8];
    for (std::int64_t row = 0; row < p.rows; ++row)
      for (std::int64_t col = 0; col < p.cols; col += 16) {
        load(row, col, pairs);
        raise(&p.state->amax_bits, find_amax_of_row_block<transform>(pairs));
      }
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(p.tensor_amax());
    for (std::int64_t row = 0; row < p.rows; ++row)
      for (std::int64_t col = 0; col < p.cols; col += 16) {
        load(row, col, pairs);
        const PhiloxWords random = p.random_words(row, col);
        const RowBlock block = encode_row_block<stochastic, transform>(tensor, random, bias_of(p), pairs);
        const std::int64_t at = (row * p.cols + col) / 16;
        if (operand) {
          for (int half = 0; half < 2; ++half)
            row_operand(block.magnitudes[half], twice(E4m3::decode(block.scale_byte)), pairs + 4 * half);
          std::memcpy(static_cast<std::byte*>(p.codes) + at * 32, pairs, 32);
          continue;
        }
        const std::uint32_t codes[2] = {row_codes(block.magnitudes[0], pairs),
                                        row_codes(block.magnitudes[1], pairs + 4)};
        std::memcpy(static_cast<std::byte*>(p.codes) + at * 8, codes, 8);
        static_cast<std::uint8_t*>(p.scales)[at] = static_cast<std::uint8_t>(block.scale_byte);
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
  with_encoding(p, [&](auto transform, auto stochastic, auto operand) {
    const ColumnPatches patches(p);
    for (std::uint32_t i = 0; i < patches.count(); ++i)
      raise(&p.state->amax_bits, find_amax_of_patch<transform>(patches.load(patches.place(i))));
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(p.tensor_amax());
    for (std::uint32_t i = 0; i < patches.count(); ++i) {
      Patch patch = patches.load(patches.place(i));
      encode_patch<transform, stochastic, operand>(p, tensor, p.is_poisoned(), patches.place(i), patch);
    }
  });
  return result;
}

/// The kernels of quantize_tiles.cu for 1x128, between their barriers.
template <bool kRows, Columns kColumns>
void encode_tiles(const TileProblem& p, QuantState* state) {
  const auto tiles = static_cast<std::uint32_t>((p.rows + kTile - 1) / kTile) * p.tiles_per_row;
  const auto shared = std::make_unique<TileShared>();
  for (std::uint32_t index = 0; index < tiles; ++index) {
    std::memset(shared.get(), 0xAA, sizeof(*shared));
    const TileProblem::Place tile = p.tile(index);
    std::vector<Square> squares;
    for (int thread = 0; thread < kTileThreads; ++thread) squares.push_back(load_square(p, tile, thread));
    const auto square = [&](int thread) -> const Square& {
      return squares[static_cast<std::size_t>(thread)];
    };
    for (int thread = 0; thread < kTileThreads; ++thread)
      share_maxima<kRows, kColumns>(square(thread), thread, *shared);
    for (int thread = 0; thread < kTileThreads; ++thread)
      raise(&state->amax_bits, share_scales<kRows, kColumns>(p, tile, thread, *shared));
    for (int thread = 0; thread < kTileThreads; ++thread)
      encode_square<kRows, kColumns>(p, tile, thread, square(thread), *shared);
    if (kColumns == Columns::turned)
      for (int thread = 0; thread < kTileThreads; ++thread) store_turned(p, tile, thread, *shared);
  }
}

Result quantize_in_tiles(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options) {
  Result result;
  prepare(x, spec, options, result.tensor);
  QuantProblem p = make_problem(x, spec, options, result.tensor);
  Between between;
  between.attach(p);
  EXPECT_TRUE(suits_tiles(p));
  if (p.is_row_major())
    encode_tiles<true, Columns::unused>(tile_problem(p), p.state);
  else if (p.order == CodeOrder::row_major)
    encode_tiles<false, Columns::turned>(tile_problem(p), p.state);
  else
    encode_tiles<false, Columns::as_they_lie>(tile_problem(p), p.state);
  settle_share(p, 0, 1);
  return result;
}

/// The rows and the columns of one matrix together.
std::array<Result, 2> quantize_both_in_tiles(const MatrixView& x, const QuantSpec& spec,
                                             const QuantizeOptions& row_options,
                                             const QuantizeOptions& col_options) {
  std::array<Result, 2> results;
  prepare(x, spec, row_options, results[0].tensor);
  prepare(x.transposed(), spec, col_options, results[1].tensor);
  QuantProblem row = make_problem(x, spec, row_options, results[0].tensor);
  QuantProblem column = make_problem(x.transposed(), spec, col_options, results[1].tensor);
  Between between;
  between.attach(row);
  column.state = row.state;
  EXPECT_TRUE(suits_tiles(row) && suits_tiles(column));
  if (column.order == CodeOrder::row_major)
    encode_tiles<true, Columns::turned>(tile_problem(row, column), row.state);
  else
    encode_tiles<true, Columns::as_they_lie>(tile_problem(row, column), row.state);
  settle_share(row, 0, 1);
  settle_share(column, 0, 1);
  return results;
}

/// The kernels of quantize_mx.cu, but for the exchange between lanes.
template <typename T, bool kStochastic, bool kOperand>
void encode_mx_rows(const QuantProblem& p) {
  const std::int64_t per_row = p.cols / kMxPart;
  for (std::int64_t row = 0; row < p.rows; ++row)
    for (std::int64_t first = 0; first < per_row; first += kMxThreads) {
      std::vector<MxPart<T>> parts;
      std::uint32_t amax = 0;
      for (int i = 0; i < kMxThreads; ++i) {
        parts.emplace_back(static_cast<const T*>(p.x) + row * p.row_stride + (first + i) * kMxPart);
        amax = std::max(amax, parts.back().take_amax());
      }
      raise(&p.state->amax_bits, amax);
      for (int i = 0; i < kMxThreads; ++i)
        mx_store_part<kStochastic, kOperand>(p, row, first + i, amax, parts[static_cast<std::size_t>(i)]);
    }
}
template <typename T, int kHadamard, bool kStochastic, bool kOperand>
void encode_mx_columns(const QuantProblem& p) {
  const ColumnStrips<T> strips(p);
  for (std::uint32_t i = 0; i < strips.count(); ++i) {
    const StripPlace at = strips.place(i);
    Strip<T> strip = strips.load(at);
    raise(&p.state->amax_bits, encode_strip<kHadamard, kStochastic, kOperand>(p, at, strip));
  }
}

Result quantize_in_mx_blocks(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options) {
  Result result;
  prepare(x, spec, options, result.tensor);
  QuantProblem p = make_problem(x, spec, options, result.tensor);
  Between between;
  between.attach(p);
  with_bool(p.is_stochastic(), [&](auto stochastic) {
    with_bool(p.form == Form::operand, [&](auto operand) {
      if (p.dtype == DType::f32)
        return p.is_row_major() ? encode_mx_rows<float, stochastic, operand>(p)
                                : encode_mx_columns<float, 0, stochastic, operand>(p);
      if (p.is_row_major()) return encode_mx_rows<Bf16, stochastic, operand>(p);
      if (p.hadamard == 0) encode_mx_columns<Bf16, 0, stochastic, operand>(p);
      if (p.hadamard == 16) encode_mx_columns<Bf16, 16, stochastic, operand>(p);
      if (p.hadamard == 32) encode_mx_columns<Bf16, 32, stochastic, operand>(p);
    });
  });
  settle_share(p, 0, 1);
  return result;
}

bool same(const Buffer& a, const Buffer& b) {
  return a.size() == b.size() && (a.size() == 0 || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

/// What an operand must hold, from the CPU's codes.
std::vector<Bf16> operand_of(const QuantizedTensor& packed) {
  std::vector<float> values(static_cast<std::size_t>(packed.rows * packed.cols));
  const bool row_major = packed.order == CodeOrder::row_major;
  cpu::decode(packed, {0, packed.rows, 0, packed.cols}, cpu::DecodeTo::operand, values.data(),
              row_major ? packed.cols : packed.rows);
  std::vector<Bf16> result;
  for (const float value : values) result.push_back(Bf16::from_f32(value));
  return result;
}

void expect_operand(const QuantizedTensor& actual, const QuantizedTensor& packed) {
  const std::vector<Bf16> expected = operand_of(packed);
  ASSERT_EQ(actual.codes.size(), expected.size() * sizeof(Bf16));
  EXPECT_EQ(std::memcmp(actual.codes.data(), expected.data(), actual.codes.size()), 0);
}

void expect_equal(const Result& actual, const QuantizedTensor& expected) {
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

QuantizeOptions options_of(CodeOrder order, Form form) {
  return {
      .random = kRandom, .part = {48, 32, 8192}, .order = order, .form = form, .telemetry = Telemetry::full};
}

class QuantizeKernels : public ::testing::TestWithParam<QuantCase> {
 protected:
  QuantizeKernels() { set_thread_count(1); }  // the matrices are too small to share out
  ~QuantizeKernels() override { set_thread_count(0); }
};

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
          const QuantStats stats = cpu::quantize(x.view, spec, options, expected);
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
        cpu::quantize(x.view, spec, options, expected);
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
      cpu::quantize(x.view, spec, options_of(order, Form::packed), expected);
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

// --- FP8 1x128 in tiles -----------------------------------------------------------------------------------

constexpr QuantSpec kFp8{.format = Format::fp8, .block = {1, 128}};

struct TileCase {
  std::string kind;
  std::int64_t rows, cols;  //!< as they lie
  float bad = 0;            //!< takes the place of an element
};

/// The shapes have whole tiles, parts of tiles, and both.
std::vector<TileCase> tile_cases() {
  std::vector<TileCase> cases;
  for (const std::string& kind : oracle::input_kinds()) cases.push_back({kind, 128, 256});
  for (const auto& [rows, cols] :
       {std::pair{16, 16}, {48, 272}, {272, 48}, {256, 400}, {400, 384}, {16, 128}, {128, 16}})
    cases.push_back({"heavy_tailed", rows, cols});
  cases.push_back({"gaussian", 144, 272, std::numeric_limits<float>::quiet_NaN()});
  cases.push_back({"gaussian", 144, 272, -std::numeric_limits<float>::infinity()});
  return cases;
}

void expect_equal_with_amax(const Result& actual, const QuantizedTensor& expected) {
  expect_equal(actual, expected);
  const float amax = *actual.tensor.device_amax.as<float>();
  EXPECT_TRUE(std::isnan(expected.amax) ? std::isnan(amax) : amax == expected.amax);
}

TEST(Fp8Tiles, GiveTheCpusBytes) {
  set_thread_count(1);
  for (const TileCase& test : tile_cases()) {
    SCOPED_TRACE(test.kind + " " + std::to_string(test.rows) + "x" + std::to_string(test.cols));
    std::vector<float> values = oracle::rounded_to_bf16(oracle::make_input(test.kind, test.rows, test.cols));
    if (test.bad != 0) values[values.size() - 5] = test.bad;
    const Input x(values, test.rows, test.cols, DType::bf16, false);
    const QuantizeOptions row_options = options_of(CodeOrder::row_major, Form::packed);
    QuantizedTensor by_rows;
    cpu::quantize(x.view, kFp8, row_options, by_rows);
    expect_equal_with_amax(quantize_in_tiles(x.view, kFp8, row_options), by_rows);
    for (const CodeOrder order : {CodeOrder::row_major, CodeOrder::col_major}) {
      SCOPED_TRACE(static_cast<int>(order));
      const QuantizeOptions options = options_of(order, Form::packed);
      QuantizedTensor by_columns;
      cpu::quantize(x.view.transposed(), kFp8, options, by_columns);
      expect_equal_with_amax(quantize_in_tiles(x.view.transposed(), kFp8, options), by_columns);
      const auto both = quantize_both_in_tiles(x.view, kFp8, row_options, options);
      expect_equal_with_amax(both[0], by_rows);
      expect_equal_with_amax(both[1], by_columns);
    }
  }
  set_thread_count(0);
}

/// Rows need not be a multiple of anything where they are not blocks.
TEST(Fp8Tiles, TakeAnyNumberOfRows) {
  for (const std::int64_t rows : {1, 5, 130}) {
    const Input x(oracle::make_input("outlier", rows, 144), rows, 144, DType::bf16, false);
    const QuantizeOptions options = options_of(CodeOrder::row_major, Form::packed);
    QuantizedTensor expected;
    cpu::quantize(x.view, kFp8, options, expected);
    expect_equal_with_amax(quantize_in_tiles(x.view, kFp8, options), expected);
  }
}

/// Quantizes in both forms and compares.
void expect_mx_blocks_equal(const MatrixView& x, const QuantSpec& spec, CodeOrder order) {
  const QuantizeOptions options = options_of(order, Form::packed);
  QuantizedTensor expected;
  cpu::quantize(x, spec, options, expected);
  expect_equal_with_amax(quantize_in_mx_blocks(x, spec, options), expected);
  const Result operand = quantize_in_mx_blocks(x, spec, options_of(order, Form::operand));
  if (!std::isnan(expected.amax)) {
    expect_operand(operand.tensor, expected);
    return;
  }
  for (const Bf16 value : operand.tensor.codes.span<Bf16>()) ASSERT_TRUE(std::isnan(value.to_f32()));
}

TEST(MxBlocks, GiveTheCpusBytes) {
  set_thread_count(1);
  for (TileCase test : tile_cases()) {
    test.cols = (test.cols + 31) / 32 * 32;  // whole blocks; the rest is for the kernels for everything
    std::vector<float> values = oracle::make_input(test.kind, test.rows, test.cols);
    if (test.bad != 0) values[values.size() - 5] = test.bad;
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const bool transposed : {false, true}) {
        const Input x(values, test.rows, test.cols, dtype, transposed);
        for (const Rounding rounding :
             {Rounding::nearest, Rounding::stochastic, Rounding::stochastic_hardware})
          for (const int hadamard : {0, 16, 32}) {
            if (hadamard > 0 && (!transposed || dtype == DType::f32)) continue;
            SCOPED_TRACE(test.kind + " " + std::to_string(test.rows) + "x" + std::to_string(test.cols) + " " +
                         std::string(name_of(dtype)) + " transposed " + std::to_string(transposed) +
                         " hadamard " + std::to_string(hadamard));
            expect_mx_blocks_equal(
                x.view,
                {.format = Format::mxfp4, .block = {1, 32}, .rounding = rounding, .hadamard = hadamard},
                transposed ? CodeOrder::col_major : CodeOrder::row_major);
          }
      }
  }
  set_thread_count(0);
}

TEST(TurnedTile, TransposesBytes) {
  for (const auto& [rows, cols] : {std::pair{128, 128}, {16, 48}, {272, 400}}) {
    std::vector<std::uint8_t> in(static_cast<std::size_t>(rows * cols));
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
    std::vector<std::uint8_t> out(in.size());
    for (int row = 0; row < rows; row += kTile)
      for (int col = 0; col < cols; col += kTile) {
        TurnedTile tile;
        for (int thread = 0; thread < kTileThreads; ++thread)
          turn_square_of_bytes(in.data(), rows, cols, row, col, thread, tile);
        for (int thread = 0; thread < kTileThreads; ++thread)
          tile.store(thread, row, col, rows, cols, out.data());
      }
    for (int row = 0; row < rows; ++row)
      for (int col = 0; col < cols; ++col)
        ASSERT_EQ(out[static_cast<std::size_t>(col * rows + row)],
                  in[static_cast<std::size_t>(row * cols + col)]);
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
    const QuantStats stats = cpu::quantize(x.view, spec, options, expected);
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
  p.adaptive = tensor.spec.adaptive;
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
    cpu::quantize(view_of(x.data(), kRows, kCols), spec, options_of(order, Form::packed), tensor);
    std::vector<float> expected(x.size());
    cpu::dequantize(tensor, mutable_view_of(expected.data(), kRows, kCols));
    const DecodeProblem p = decode_problem(tensor);
    with_codec(spec.format, tensor.amax, spec.adaptive, [&]<typename Codec>(const Codec&) {
      for (std::int64_t row = 0; row < kRows; ++row)
        for (std::int64_t col = 0; col < kCols; col += 16) {
          float values[16];
          decode_group<Codec>(p, row, col, p.tensor_decode(), values);
          const float* right = expected.data() + row * kCols + col;
          for (int i = 0; i < 16; ++i)
            ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(right[i]));
        }
    });
    if (spec.format != Format::nvfp4 || order != CodeOrder::col_major) continue;
    const std::vector<Bf16> operand = operand_of(tensor);
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

}  // namespace
}  // namespace tetrad::cuda
