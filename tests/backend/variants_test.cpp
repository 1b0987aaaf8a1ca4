// SPDX-License-Identifier: Apache-2.0
// Every instruction set that this processor has, against the baseline: the same bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "oracle/inputs.h"
#include "support/quant_cases.h"
#include "tetrad/backend/cpu/instruction_sets.h"
#include "tetrad/core/error.h"
#include "tetrad/ops/backend.h"

namespace tetrad::testing::variants_test {
namespace {

constexpr RandomStream kRandom{.seed = 11, .step = 3, .microbatch = 1, .tensor = 5};

/// The last is the simplest of them.
std::vector<std::string> usable_sets() { return cpu_instruction_sets().usable; }

class InstructionSet : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = make_cpu_backend({.threads = 0, .instruction_set = GetParam()});
  std::unique_ptr<Backend> reference_ =
      make_cpu_backend({.threads = 0, .instruction_set = usable_sets().back()});
};

std::vector<std::byte> bytes_of(const Buffer& buffer) {
  return {buffer.span<std::byte>().begin(), buffer.span<std::byte>().end()};
}

TEST_P(InstructionSet, QuantizesToTheSameBytes) {
  constexpr std::int64_t kRows = 128, kCols = 384;
  const std::vector<float> x = oracle::make_input("gaussian", kRows, kCols);
  for (const auto& [name, spec] : quant_cases())
    for (const CodeOrder order : {CodeOrder::row_major, CodeOrder::col_major}) {
      SCOPED_TRACE(name);
      QuantSpec in_order = spec;
      in_order.axis = order == CodeOrder::row_major ? 1 : 0;
      QuantizedTensor actual, expected;
      backend_->quantize(view_of(x.data(), kRows, kCols), in_order, {.random = kRandom, .order = order},
                         actual);
      reference_->quantize(view_of(x.data(), kRows, kCols), in_order, {.random = kRandom, .order = order},
                           expected);
      EXPECT_EQ(bytes_of(actual.codes), bytes_of(expected.codes));
      EXPECT_EQ(bytes_of(actual.scales), bytes_of(expected.scales));
      std::vector<float> decoded(x.size()), as_decoded(x.size());
      backend_->dequantize(actual, mutable_view_of(decoded.data(), actual.rows, actual.cols));
      reference_->dequantize(expected, mutable_view_of(as_decoded.data(), expected.rows, expected.cols));
      EXPECT_EQ(decoded, as_decoded);
    }
}

/// An operand [rows, k] in every form that a product takes.
struct Operand {
  std::vector<float> wide;
  std::vector<Bf16> narrow;
  std::vector<QuantizedTensor> quantized;
  std::vector<GemmOperand> forms;

  Operand(Backend& backend, std::int64_t rows, std::int64_t k)
      : wide(oracle::rounded_to_bf16(oracle::make_input("gaussian", rows, k))) {
    for (const float value : wide) narrow.push_back(Bf16::from_f32(value));
    const MatrixView f32 = view_of(wide.data(), rows, k);
    forms.emplace_back(view_of(narrow.data(), rows, k));
    forms.emplace_back(f32);
    forms.push_back(GemmOperand(view_of(narrow.data(), k, rows)).transposed());
    forms.push_back(GemmOperand(view_of(wide.data(), k, rows)).transposed());
    if (rows % 32 != 0 || k % 32 != 0) return;
    quantized.resize(4);
    backend.quantize(f32, {.block = {1, 16}}, {}, quantized[0]);
    backend.quantize(f32, {.format = Format::mxfp4, .block = {1, 32}}, {}, quantized[1]);
    backend.quantize(f32, {.format = Format::fp8, .block = {1, 128}}, {}, quantized[2]);
    backend.quantize(view_of(wide.data(), k, rows), {.format = Format::fp8, .block = {1, 128}}, {},
                     quantized[3]);
    for (std::size_t i = 0; i < 3; ++i) forms.emplace_back(quantized[i]);
    forms.push_back(GemmOperand(quantized[3]).transposed());
  }
};

std::vector<float> product(Backend& backend, const GemmOperand& a, const GemmOperand& b) {
  std::vector<float> out(static_cast<std::size_t>(a.rows() * b.rows()), 0.25f);
  backend.gemm(a, b, mutable_view_of(out.data(), a.rows(), b.rows()), Accumulate::yes);
  return out;
}

TEST_P(InstructionSet, MultipliesToTheSameBits) {
  struct Shape {
    std::int64_t m, n, k;
  };
  // One slice and several, extents that fill no block, a depth that is odd.
  for (const Shape& shape :
       {Shape{33, 50, 7}, {1, 97, 513}, {64, 96, 256}, {160, 32, 1184}, {32, 224, 544}, {5, 1600, 40}}) {
    SCOPED_TRACE(::testing::Message() << shape.m << " x " << shape.n << " x " << shape.k);
    const Operand a(*reference_, shape.m, shape.k);
    const Operand b(*reference_, shape.n, shape.k);
    for (std::size_t i = 0; i < a.forms.size(); ++i)
      for (std::size_t j = 0; j < b.forms.size(); ++j)
        EXPECT_EQ(product(*backend_, a.forms[i], b.forms[j]), product(*reference_, a.forms[i], b.forms[j]))
            << "forms " << i << " and " << j;
  }
}

/// numerics.md: the order of a sum is the same for every kind of operand.
TEST_P(InstructionSet, MultipliesF32CopiesOfBf16ValuesToTheSameBits) {
  const Operand a(*backend_, 50, 1100);
  const Operand b(*backend_, 70, 1100);
  EXPECT_EQ(product(*backend_, a.forms[0], b.forms[0]), product(*backend_, a.forms[1], b.forms[1]));
  EXPECT_EQ(product(*backend_, a.forms[0], b.forms[0]), product(*backend_, a.forms[0], b.forms[1]));
}

/// The order itself, spelled out.
TEST_P(InstructionSet, SumsInTheOrderOfNumerics) {
  constexpr std::int64_t kDepth = 1201;
  const Operand a(*backend_, 3, kDepth);
  const Operand b(*backend_, 5, kDepth);
  const std::vector<float> out = product(*backend_, a.forms[1], b.forms[1]);
  for (std::int64_t row = 0; row < 3; ++row)
    for (std::int64_t col = 0; col < 5; ++col) {
      const auto at = [&](const Operand& operand, std::int64_t r, std::int64_t k) {
        return k < kDepth ? operand.wide[static_cast<std::size_t>(r * kDepth + k)] : 0.0f;
      };
      float total = 0;
      for (std::int64_t slice = 0; slice < kDepth; slice += 512) {
        float sum = 0;
        for (std::int64_t k = slice; k < std::min(slice + 512, kDepth); k += 2) {
          sum = std::fma(at(a, row, k + 1), at(b, col, k + 1), sum);
          sum = std::fma(at(a, row, k), at(b, col, k), sum);
        }
        total = slice == 0 ? sum : total + sum;
      }
      EXPECT_EQ(out[static_cast<std::size_t>(row * 5 + col)], 0.25f + total);
    }
}

INSTANTIATE_TEST_SUITE_P(All, InstructionSet, ::testing::ValuesIn(usable_sets()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(InstructionSets, AnUnknownOneIsRefusedWithThoseThatAreValid) {
  try {
    make_cpu_backend({.threads = 0, .instruction_set = "abacus"});
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(usable_sets().back()), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tetrad::testing::variants_test
