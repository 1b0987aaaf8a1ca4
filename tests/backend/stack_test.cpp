// SPDX-License-Identifier: Apache-2.0
// Several tensors in one matrix: every one must have the codes and the rows of a product that it has alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "support/errors.h"
#include "support/matrices.h"
#include "support/quant_cases.h"
#include "tetrad/core/tensor.h"

namespace tetrad::testing::stack_test {
namespace {

constexpr std::int64_t kCols = 256;
constexpr RandomStream kRandom{.seed = 5, .step = 3, .microbatch = 1, .tensor = 2};

/// Of one row, of few and of so many that all threads share them.
const std::vector<std::int64_t>& tensors() {
  static const std::vector<std::int64_t> rows = {1, 7, 1, 33, 70, 2};
  return rows;
}
constexpr std::int64_t kRows = 114;

/// Each tensor is another hundred times as large as the one before it, or as small.
TestMatrix input(DType dtype) {
  std::vector<double> values = random_values(kRows * kCols, 17);
  std::size_t at = 0;
  for (std::size_t i = 0; i < tensors().size(); ++i) {
    const double scale = i % 2 == 0 ? 0.01 : 3.0 * static_cast<double>(i + 1);
    const std::size_t end = at + static_cast<std::size_t>(tensors()[i] * kCols);
    for (; at < end; ++at) values[at] *= scale;
  }
  return {{dtype, false}, kRows, kCols, values};
}

QuantizeOptions options(std::span<const std::int64_t> stack = {}) {
  return {.random = kRandom, .telemetry = Telemetry::none, .stack = stack};
}

/// Calls `check(first row, rows, place)` for each tensor.
template <typename Check>
void for_each_tensor(const Check& check) {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < tensors().size(); ++i) {
    SCOPED_TRACE(i);
    check(first, tensors()[i], i);
    first += tensors()[i];
  }
}

bool same_bits(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

/// The rows of a buffer of kRows.
std::span<const std::byte> part(const Buffer& buffer, std::int64_t first, std::int64_t rows) {
  const std::size_t row = buffer.size() / kRows;
  return buffer.span<std::byte>().subspan(static_cast<std::size_t>(first) * row,
                                          static_cast<std::size_t>(rows) * row);
}

class Stacks : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam()); }
  void SetUp() override {
    if (!device().has_stacks()) GTEST_SKIP() << "this backend multiplies one tensor at a time";
  }
};
INSTANTIATE_TEST_SUITE_P(All, Stacks, ::testing::ValuesIn(backend_names()), BackendTestName());

TEST(CpuBackend, HasStacks) { EXPECT_TRUE(backend("cpu").has_stacks()); }

TEST_P(Stacks, AreTheTensorsAlone) {
  for (const QuantCase& quantizer : quant_cases()) {
    if (!can_stack(quantizer.spec)) continue;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(quantizer.name + " " + std::string(name_of(dtype)));
      const TestMatrix x = input(dtype);
      QuantizedTensor stack;
      device().quantize(x.view(), quantizer.spec, options(tensors()), stack);
      ASSERT_EQ(stack.stack.size(), tensors().size());
      for_each_tensor([&](std::int64_t first, std::int64_t count, std::size_t i) {
        QuantizedTensor alone;
        device().quantize(rows(x.view(), first, count), quantizer.spec, options(), alone);
        EXPECT_TRUE(alone.stack.empty());
        EXPECT_TRUE(same_bits(part(stack.codes, first, count), alone.codes.span<std::byte>()));
        EXPECT_TRUE(same_bits(part(stack.scales, first, count), alone.scales.span<std::byte>()));
        EXPECT_EQ(stack.stack[i].rows, count);
        EXPECT_EQ(std::bit_cast<std::uint32_t>(stack.stack[i].amax),
                  std::bit_cast<std::uint32_t>(alone.amax));
      });
    }
  }
}

TEST_P(Stacks, MultiplyAsTheTensorsAlone) {
  constexpr std::int64_t kOut = 112;
  const TestMatrix w({DType::bf16, false}, kOut, kCols, random_values(kOut * kCols, 4));
  QuantizedTensor squares;
  device().quantize(w.view(), {.block = {16, 16}}, options(), squares);
  QuantizedTensor fp8;
  device().quantize(w.view(), {.format = Format::fp8, .block = {128, 128}}, options(), fp8);
  for (const QuantSpec& spec : {QuantSpec{.block = {1, 16}},
                                {.block = {1, 16}, .scaling = Scaling::search},
                                {.format = Format::mxfp4, .block = {1, 32}},
                                {.format = Format::fp8, .block = {1, 128}}})
    for (const GemmOperand& weight : {GemmOperand(w.view()), GemmOperand(squares), GemmOperand(fp8)})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          if (accumulate == Accumulate::yes && dtype != DType::f32) continue;
          SCOPED_TRACE(describe(spec) + " to " + std::string(name_of(dtype)));
          const TestMatrix x = input(DType::bf16);
          const std::vector<double> before = random_values(kRows * kOut, 9);
          QuantizedTensor stack;
          device().quantize(x.view(), spec, options(tensors()), stack);
          TestMatrix y({dtype, true}, kRows, kOut, before);
          device().gemm(stack, weight, y.mutable_view(), accumulate);
          TestMatrix expected({dtype, true}, kRows, kOut, before);
          for_each_tensor([&](std::int64_t first, std::int64_t count, std::size_t) {
            QuantizedTensor alone;
            device().quantize(rows(x.view(), first, count), spec, options(), alone);
            device().gemm(alone, weight, rows(expected.mutable_view(), first, count), accumulate);
          });
          EXPECT_EQ(y.values(), expected.values());
          EXPECT_TRUE(y.guards_untouched());
        }
}

TEST_P(Stacks, WhatIsNotFiniteStaysInItsTensor) {
  TestMatrix x = input(DType::f32);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  static_cast<float*>(x.mutable_view().data)[5 * kCols + 3] = nan;  // of the second tensor
  QuantizedTensor stack;
  QuantStats stats = device().quantize(x.view(), {.block = {1, 16}}, options(tensors()), stack);
  EXPECT_EQ(stats.non_finite, 1);
  const TestMatrix w({DType::bf16, false}, 16, kCols, random_values(16 * kCols, 4));
  TestMatrix y({DType::f32, false}, kRows, 16);
  device().gemm(stack, w.view(), y.mutable_view());
  const std::vector<double> values = y.values();
  for_each_tensor([&](std::int64_t first, std::int64_t count, std::size_t i) {
    for (std::int64_t at = first * 16; at < (first + count) * 16; ++at)
      EXPECT_EQ(std::isnan(values[static_cast<std::size_t>(at)]), i == 1) << at;
  });
}

TEST_P(Stacks, MemoryThatHeldAStackHoldsATensor) {
  const TestMatrix x = input(DType::bf16);
  QuantizedTensor memory;
  device().quantize(x.view(), {.block = {1, 16}}, options(tensors()), memory);
  device().quantize(x.view(), {.block = {1, 16}}, options(), memory);
  QuantizedTensor fresh;
  device().quantize(x.view(), {.block = {1, 16}}, options(), fresh);
  EXPECT_TRUE(memory.stack.empty());
  EXPECT_TRUE(same_bits(memory.codes.span<std::byte>(), fresh.codes.span<std::byte>()));
}

TEST_P(Stacks, AreRefusedWhereScalesSpanRows) {
  const TestMatrix x = input(DType::bf16);
  QuantizedTensor out;
  const auto quantize = [&](const QuantSpec& spec, std::span<const std::int64_t> stack) {
    device().quantize(x.view(), spec, options(stack), out);
  };
  expect_bad_input([&] { quantize({.block = {16, 16}}, tensors()); }, {"cannot be stacked"});
  expect_bad_input([&] { quantize({.block = {1, 16}, .axis = 0}, tensors()); }, {"cannot be stacked"});
  expect_bad_input([&] { quantize({.format = Format::fp8, .block = BlockShape::whole()}, tensors()); },
                   {"cannot be stacked"});
  expect_bad_input(
      [&] {
        quantize({.block = {1, 16}}, std::vector<std::int64_t>{100, 13});
      },
      {"114 rows together"});
  quantize({.block = {1, 16}}, tensors());
  TestMatrix y({DType::f32, false}, kRows, kRows);
  expect_bad_input([&] { device().gemm(x.view(), out, y.mutable_view()); }, {"only the first operand"});
}

}  // namespace
}  // namespace tetrad::testing::stack_test
