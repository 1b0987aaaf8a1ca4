// SPDX-License-Identifier: Apache-2.0
// What matrix units take as it is, and how codes and scales are brought into their layouts, without a device.

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "oracle/inputs.h"
#include "support/cpu.h"
#include "support/quantized_layout.h"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/backend/cuda/common/transposed_tile.cuh"
#include "tetrad/backend/cuda/gemm/native.h"
#include "tetrad/backend/cuda/gemm/nvfp4_swizzled_scales.cuh"
#include "tetrad/core/tensor.h"

namespace tetrad::cuda {
namespace {

using tetrad::testing::swizzle_scales;
using tetrad::testing::transposed;

using tetrad::testing::cpu_backend;

constexpr int kAmpere = 86;
constexpr int kAda = 89;
constexpr int kHopper = 90;
constexpr int kBlackwell = 100;
constexpr int kBlackwellRtx = 120;

TEST(Native, FormatsOfEachGeneration) {
  for (const int capability : {0, kAmpere, kAda, kHopper, kBlackwell, kBlackwellRtx}) {
    EXPECT_EQ(is_native(Format::fp8, capability), capability != 0 && capability != kAmpere);
    EXPECT_EQ(is_native(Format::nvfp4, capability), capability == kBlackwell || capability == kBlackwellRtx);
    EXPECT_FALSE(is_native(Format::mxfp4, capability));
    EXPECT_EQ(has_fp8_in_blas(capability), capability == kHopper);
  }
}

TEST(Native, QuantizersLeaveCodesWhereCodesAreMultiplied) {
  EXPECT_EQ(operand_form(Format::nvfp4, kHopper), Form::operand);
  EXPECT_EQ(operand_form(Format::nvfp4, kBlackwell), Form::packed);
  EXPECT_EQ(operand_form(Format::mxfp4, kBlackwell), Form::operand);
  for (const int capability : {kAmpere, kHopper, kBlackwell})
    EXPECT_EQ(operand_form(Format::fp8, capability), Form::packed) << "its values are not exact in BF16";
}

QuantizedTensor shaped(std::int64_t rows, std::int64_t cols, BlockShape block = {1, 16},
                       CodeOrder order = CodeOrder::row_major) {
  QuantizedTensor tensor;
  tensor.spec.block = block;
  tensor.rows = rows;
  tensor.cols = cols;
  tensor.order = order;
  return tensor;
}

TEST(NativeFp4, TakesLinesOfSixteenBytes) {
  EXPECT_TRUE(is_native_nvfp4(shaped(16, 32)));
  EXPECT_TRUE(is_native_nvfp4(shaped(272, 4096)));
  EXPECT_TRUE(is_native_nvfp4(shaped(64, 64, {1, 16}, CodeOrder::col_major))) << "transposed for the product";
  EXPECT_FALSE(is_native_nvfp4(shaped(16, 48))) << "24 bytes";
  EXPECT_FALSE(is_native_nvfp4(shaped(24, 64)));
  EXPECT_FALSE(is_native_nvfp4(shaped(1, 64)));
}

TEST(NativeFp4, OnlySquaresAreTheSameFromTheOtherSide) {
  const QuantizedTensor rows = shaped(64, 64);
  const QuantizedTensor squares = shaped(64, 64, {16, 16});
  const QuantizedTensor columns_of_squares = shaped(64, 64, {16, 16}, CodeOrder::col_major);
  EXPECT_TRUE(is_native_nvfp4(squares));
  EXPECT_TRUE(is_native_nvfp4(GemmOperand(squares).transposed()));
  EXPECT_FALSE(is_native_nvfp4(GemmOperand(rows).transposed())) << "blocks across the reduction dimension";
  EXPECT_TRUE(is_native_nvfp4(columns_of_squares));
  EXPECT_FALSE(is_native_nvfp4(GemmOperand(columns_of_squares).transposed()));
  const QuantizedTensor flat = shaped(32, 48, {16, 16});
  EXPECT_FALSE(is_native_nvfp4(flat));
  EXPECT_TRUE(is_native_nvfp4(GemmOperand(flat).transposed())) << "48 rows of 32";
}

TEST(NativeFp4, TakesCodesOfNvfp4Alone) {
  QuantizedTensor tensor = shaped(64, 64);
  tensor.form = Form::operand;
  EXPECT_FALSE(is_native_nvfp4(tensor)) << "values in BF16";
  tensor.form = Form::packed;
  tensor.spec = {.format = Format::mxfp4, .block = {1, 32}};
  EXPECT_FALSE(is_native_nvfp4(tensor));
  tensor.spec = {.format = Format::fp8, .block = {1, 128}};
  EXPECT_FALSE(is_native_nvfp4(tensor));
  const std::vector<float> values(64 * 64);
  EXPECT_FALSE(is_native_nvfp4(view_of(values.data(), 64, 64)));
}

TEST(NativeFp8, TakesBlocksAlongTheDepth) {
  const auto takes = [](const QuantSpec& spec, std::int64_t rows, std::int64_t cols,
                        bool transposed = false) {
    QuantizedTensor tensor = shaped(rows, cols);
    tensor.spec = spec;
    return is_native_fp8(transposed ? GemmOperand(tensor).transposed() : GemmOperand(tensor));
  };
  const QuantSpec rows{.format = Format::fp8, .block = {1, 128}};
  const QuantSpec squares{.format = Format::fp8, .block = {128, 128}};
  const QuantSpec whole{.format = Format::fp8, .block = BlockShape::whole()};
  for (const QuantSpec& spec : {rows, squares}) {
    EXPECT_TRUE(takes(spec, 2048, 4096));
    EXPECT_TRUE(takes(spec, 2048, 10304)) << "the last block has 64";
    EXPECT_TRUE(takes(spec, 16, 16));
    EXPECT_FALSE(takes(spec, 16, 24)) << "lines of 24 bytes";
    EXPECT_FALSE(takes(spec, 8, 128));
  }
  EXPECT_TRUE(takes(squares, 10304, 2048, true));
  EXPECT_FALSE(takes(rows, 10304, 2048, true)) << "blocks across the reduction dimension";
  EXPECT_FALSE(takes(whole, 128, 128));
  EXPECT_FALSE(takes({}, 128, 128)) << "NVFP4";
}

TEST(NativeFp8, LinesOfScalesCountPartsOfBlocks) {
  const auto lines = [](const BlockShape& block, std::int64_t rows, std::int64_t depth) {
    const Fp8ScaleLines found = fp8_scale_lines(block, rows, depth);
    return std::pair(found.count, found.length);
  };
  using Lines = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(lines({1, 128}, 272, 256), Lines(2, 272));
  EXPECT_EQ(lines({1, 128}, 272, 10304), Lines(81, 272));
  EXPECT_EQ(lines({128, 128}, 272, 512), Lines(3, 4));
  EXPECT_EQ(lines({128, 128}, 2048, 10304), Lines(16, 84));
  EXPECT_EQ(lines({128, 128}, 16, 16), Lines(1, 4));
}

TEST(NativeOutput, BeginsAndGoesOnAtSixteenBytes) {
  alignas(16) float memory[64] = {};
  EXPECT_TRUE(is_native_output({memory, DType::f32, 2, 16, 16, 1}));
  EXPECT_FALSE(is_native_output({memory + 1, DType::f32, 2, 16, 16, 1}));
  EXPECT_FALSE(is_native_output({memory, DType::f32, 2, 16, 18, 1}));
  EXPECT_TRUE(is_native_output({memory, DType::bf16, 2, 16, 24, 1}));
  EXPECT_FALSE(is_native_output({memory, DType::bf16, 2, 16, 20, 1}));
}

QuantizedTensor quantized(std::int64_t rows, std::int64_t cols, const QuantSpec& spec, CodeOrder order) {
  const std::vector<float> x = oracle::make_input("gaussian", rows, cols);
  QuantizedTensor tensor;
  cpu_backend().quantize(view_of(x.data(), rows, cols), spec, {.order = order, .telemetry = Telemetry::none},
                         tensor);
  return tensor;
}

/// Every piece, in no particular order, over memory that is not zero.
std::vector<std::uint8_t> swizzled(SwizzledScales scales) {
  std::vector<FourWords> out(static_cast<std::size_t>(scales.pieces()));
  std::memset(out.data(), 0xAA, out.size() * sizeof(FourWords));
  scales.out = reinterpret_cast<std::uint8_t*>(out.data());
  for (std::int64_t piece = scales.pieces() - 1; piece >= 0; --piece) scales.write(piece);
  return {scales.out, scales.out + out.size() * sizeof(FourWords)};
}

void expect_bytes(const std::vector<std::uint8_t>& actual, const Buffer& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size()), 0);
}

TEST(SwizzledScales, OfRowsAndOfColumnsAreThoseOfTheFormula) {
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{16, 32},
                                   {128, 64},
                                   {144, 96},
                                   {272, 224},
                                   {304, 1024},
                                   {1, 16}}) {
    const QuantizedTensor by_rows = quantized(rows, cols, {}, CodeOrder::row_major);
    const Buffer expected = swizzle_scales(by_rows);
    const std::int64_t columns = cols / 16;
    expect_bytes(swizzled({by_rows.scales.as<std::uint8_t>(), 0, columns, 1, rows, columns, nullptr}),
                 expected);
    const QuantizedTensor by_columns = quantized(rows, cols, {}, CodeOrder::col_major);
    expect_bytes(swizzled({by_columns.scales.as<std::uint8_t>(), 0, 1, rows, rows, columns, nullptr}),
                 expected);
  }
}

TEST(SwizzledScales, OfSquaresFromTheOtherSideAreThoseOfTheTransposedTensor) {
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{32, 16}, {64, 272}, {160, 144}, {1024, 48}}) {
    const QuantizedTensor tensor = quantized(rows, cols, {.block = {16, 16}}, CodeOrder::row_major);
    expect_bytes(swizzled({tensor.scales.as<std::uint8_t>(), 4, 1, 16 * tensor.scale_cols(), cols, rows / 16,
                           nullptr}),
                 swizzle_scales(transposed(tensor)));
  }
}

TEST(TransposedTile, TransposesPackedCodes) {
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{32, 16}, {256, 128}, {288, 144}, {544, 400}}) {
    const QuantizedTensor tensor = quantized(rows, cols, {.block = {16, 16}}, CodeOrder::row_major);
    const QuantizedTensor expected = transposed(tensor);
    std::vector<TwoWords> out(expected.codes.size() / sizeof(TwoWords));
    for (std::int64_t row = 0; row < rows / 2; row += kTile)
      for (std::int64_t col = 0; col < cols; col += kTile) {
        TransposedTile tile;
        for (int thread = 0; thread < kTileThreads; ++thread)
          transpose_square_of_packed_rows(tensor.codes.as<std::uint8_t>(), rows / 2, cols, row, col, thread,
                                          tile);
        for (int thread = 0; thread < kTileThreads; ++thread)
          tile.store(thread, row, col, rows / 2, cols, reinterpret_cast<std::uint8_t*>(out.data()));
      }
    EXPECT_EQ(std::memcmp(out.data(), expected.codes.data(), expected.codes.size()), 0);
  }
}

}  // namespace
}  // namespace tetrad::cuda
