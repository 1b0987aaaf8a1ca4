// SPDX-License-Identifier: Apache-2.0
// The quantizers that read their input once, FP8 1x128 and MXFP4 1x32, as quantize_kernels_test.cpp does it.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "backend/cuda/quantize_kernels.h"
#include "oracle/inputs.h"
#include "support/cpu.h"
#include "tetrad/backend/cuda/quantize/dispatch.cuh"
#include "tetrad/backend/cuda/quantize/finalize.cuh"
#include "tetrad/backend/cuda/quantize/fp8_tiles.cuh"
#include "tetrad/backend/cuda/quantize/generic_run.cuh"
#include "tetrad/backend/cuda/quantize/mxfp4_1x32.cuh"
#include "tetrad/core/threads.h"

namespace tetrad::cuda {
namespace {

using testing::Between;
using testing::expect_equal;
using testing::expect_operand;
using testing::Input;
using testing::options_of;
using testing::prepare;
using testing::Result;
using tetrad::testing::cpu_backend;

/// The kernels of quantize_tiles.cu for 1x128, between their barriers.
template <bool kRows, Columns kColumns>
void encode_fp8_tiles(const TileProblem& p, QuantState* state) {
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
    if (kColumns == Columns::transposed)
      for (int thread = 0; thread < kTileThreads; ++thread) store_transposed(p, tile, thread, *shared);
  }
}

Result quantize_in_tiles(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options) {
  Result result;
  prepare(x, spec, options, result.tensor);
  QuantProblem p = make_problem(x, spec, options, result.tensor);
  Between between;
  between.attach(p);
  EXPECT_TRUE(suits_fp8_1x128(p));
  if (p.is_row_major())
    encode_fp8_tiles<true, Columns::unused>(tile_problem(p), p.state);
  else if (p.order == CodeOrder::row_major)
    encode_fp8_tiles<false, Columns::transposed>(tile_problem(p), p.state);
  else
    encode_fp8_tiles<false, Columns::as_they_lie>(tile_problem(p), p.state);
  finalize_share(p, 0, 1);
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
  EXPECT_TRUE(suits_fp8_1x128(row) && suits_fp8_1x128(column));
  if (column.order == CodeOrder::row_major)
    encode_fp8_tiles<true, Columns::transposed>(tile_problem(row, column), row.state);
  else
    encode_fp8_tiles<true, Columns::as_they_lie>(tile_problem(row, column), row.state);
  finalize_share(row, 0, 1);
  finalize_share(column, 0, 1);
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
  finalize_share(p, 0, 1);
  return result;
}

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
  for (const TileCase& test : tile_cases()) {
    SCOPED_TRACE(test.kind + " " + std::to_string(test.rows) + "x" + std::to_string(test.cols));
    std::vector<float> values = oracle::rounded_to_bf16(oracle::make_input(test.kind, test.rows, test.cols));
    if (test.bad != 0) values[values.size() - 5] = test.bad;
    const Input x(values, test.rows, test.cols, DType::bf16, false);
    const QuantizeOptions row_options = options_of(CodeOrder::row_major, Form::packed);
    QuantizedTensor by_rows;
    cpu_backend().quantize(x.view, kFp8, row_options, by_rows);
    expect_equal_with_amax(quantize_in_tiles(x.view, kFp8, row_options), by_rows);
    for (const CodeOrder order : {CodeOrder::row_major, CodeOrder::col_major}) {
      SCOPED_TRACE(static_cast<int>(order));
      const QuantizeOptions options = options_of(order, Form::packed);
      QuantizedTensor by_columns;
      cpu_backend().quantize(x.view.transposed(), kFp8, options, by_columns);
      expect_equal_with_amax(quantize_in_tiles(x.view.transposed(), kFp8, options), by_columns);
      const auto both = quantize_both_in_tiles(x.view, kFp8, row_options, options);
      expect_equal_with_amax(both[0], by_rows);
      expect_equal_with_amax(both[1], by_columns);
    }
  }
}

/// Rows need not be a multiple of anything where they are not blocks.
TEST(Fp8Tiles, TakeAnyNumberOfRows) {
  for (const std::int64_t rows : {1, 5, 130}) {
    const Input x(oracle::make_input("outlier", rows, 144), rows, 144, DType::bf16, false);
    const QuantizeOptions options = options_of(CodeOrder::row_major, Form::packed);
    QuantizedTensor expected;
    cpu_backend().quantize(x.view, kFp8, options, expected);
    expect_equal_with_amax(quantize_in_tiles(x.view, kFp8, options), expected);
  }
}

/// Quantizes along rows and along columns, and compares.
void expect_mx_blocks_equal(const MatrixView& x, const QuantSpec& spec, CodeOrder order) {
  const QuantizeOptions options = options_of(order, Form::packed);
  QuantizedTensor expected;
  cpu_backend().quantize(x, spec, options, expected);
  expect_equal_with_amax(quantize_in_mx_blocks(x, spec, options), expected);
  const Result operand = quantize_in_mx_blocks(x, spec, options_of(order, Form::operand));
  if (!std::isnan(expected.amax)) {
    expect_operand(operand.tensor, expected);
    return;
  }
  for (const Bf16 value : operand.tensor.codes.span<Bf16>()) ASSERT_TRUE(std::isnan(value.to_f32()));
}

TEST(MxBlocks, GiveTheCpusBytes) {
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
}

TEST(TransposedTile, TransposesBytes) {
  for (const auto& [rows, cols] : {std::pair{128, 128}, {16, 48}, {272, 400}}) {
    std::vector<std::uint8_t> in(static_cast<std::size_t>(rows * cols));
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
    std::vector<std::uint8_t> out(in.size());
    for (int row = 0; row < rows; row += kTile)
      for (int col = 0; col < cols; col += kTile) {
        TransposedTile tile;
        for (int thread = 0; thread < kTileThreads; ++thread)
          transpose_square_of_bytes(in.data(), rows, cols, row, col, thread, tile);
        for (int thread = 0; thread < kTileThreads; ++thread)
          tile.store(thread, row, col, rows, cols, out.data());
      }
    for (int row = 0; row < rows; ++row)
      for (int col = 0; col < cols; ++col)
        ASSERT_EQ(out[static_cast<std::size_t>(col * rows + row)],
                  in[static_cast<std::size_t>(row * cols + col)]);
  }
}

}  // namespace
}  // namespace tetrad::cuda
