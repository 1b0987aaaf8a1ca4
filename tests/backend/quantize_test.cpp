// SPDX-License-Identifier: Apache-2.0
// Every quantizer of every backend against the independent oracle, byte for byte.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "oracle/inputs.h"
#include "oracle/oracle.h"
#include "support/backends.h"
#include "support/quant_cases.h"
#include "support/quantized_layout.h"
#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"

namespace tetrad::testing::quantize_test {
namespace {

constexpr RandomStream kRandom{.seed = 0x123456789ABCDEFull, .step = 7, .microbatch = 3, .tensor = 42};

/// How the input lies in memory, and how the codes shall.
enum class Layout { rows, transposed, transposed_in_place };

struct Problem {
  std::string input;
  std::int64_t rows, cols;  //!< as consumed
  DType dtype = DType::f32;
  Layout layout = Layout::rows;
};

std::vector<float> transpose(const std::vector<float>& x, std::int64_t rows, std::int64_t cols) {
  std::vector<float> result(x.size());
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col)
      result[static_cast<std::size_t>(col * rows + row)] = x[static_cast<std::size_t>(row * cols + col)];
  return result;
}

std::vector<Bf16> to_bf16(const std::vector<float>& x) {
  std::vector<Bf16> result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) result[i] = Bf16::from_f32(x[i]);
  return result;
}

struct Outcome {
  QuantizedTensor tensor;  //!< row-major
  QuantStats stats;
};

Outcome run(Backend& backend, const std::vector<float>& x, const Problem& problem, QuantSpec spec,
            Telemetry telemetry = Telemetry::full) {
  spec.axis = problem.layout == Layout::rows ? 1 : 0;
  QuantizeOptions options{.random = kRandom, .telemetry = telemetry};
  options.order = problem.layout == Layout::transposed_in_place ? CodeOrder::col_major : CodeOrder::row_major;
  const auto stored = spec.axis == 1 ? x : transpose(x, problem.rows, problem.cols);
  const auto stored_rows = spec.axis == 1 ? problem.rows : problem.cols;
  const auto stored_cols = spec.axis == 1 ? problem.cols : problem.rows;
  Outcome outcome;
  QuantizedTensor tensor;
  if (problem.dtype == DType::bf16)
    outcome.stats =
        backend.quantize(view_of(to_bf16(stored).data(), stored_rows, stored_cols), spec, options, tensor);
  else
    outcome.stats = backend.quantize(view_of(stored.data(), stored_rows, stored_cols), spec, options, tensor);
  EXPECT_EQ(tensor.order, options.order);
  outcome.tensor = to_row_major(tensor);
  return outcome;
}

template <typename T>
std::vector<T> bytes_of(const Buffer& buffer) {
  return {buffer.span<T>().begin(), buffer.span<T>().end()};
}

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
std::uint32_t bits(std::uint8_t x) { return x; }

/// Equal, or the place of the first difference: a diff of megabytes helps nobody.
template <typename T>
::testing::AssertionResult same(const std::vector<T>& actual, const std::vector<T>& expected) {
  if (actual.size() != expected.size())
    return ::testing::AssertionFailure() << actual.size() << " elements instead of " << expected.size();
  for (std::size_t i = 0; i < actual.size(); ++i)
    if (bits(actual[i]) != bits(expected[i]))
      return ::testing::AssertionFailure()
             << "first difference at " << i << ": " << +actual[i] << " instead of " << +expected[i];
  return ::testing::AssertionSuccess();
}

void expect_statistics(const QuantStats& stats, const oracle::Result& expected, std::int64_t elements) {
  EXPECT_EQ(stats.measured, elements);
  EXPECT_EQ(stats.blocks, expected.blocks);
  EXPECT_EQ(stats.zero_scale_blocks, expected.zero_scale_blocks);
  EXPECT_EQ(stats.flushed, expected.flushed);
  EXPECT_EQ(stats.saturated, expected.saturated);
  // Ours are sums of f32 squares of f32 differences: each relative to the signal, not to the noise.
  EXPECT_NEAR(stats.signal, expected.signal, 1e-5 * expected.signal);
  EXPECT_NEAR(stats.noise, expected.noise, 1e-5 * expected.noise + 1e-13 * expected.signal);
  EXPECT_NEAR(stats.max_error, expected.max_error, 1e-5 * expected.max_error + 1e-7 * expected.amax);
}

struct Reference {
  std::vector<float> x;
  oracle::Result result;
};

/// The input, and the oracle's answer. The oracle is slow, and every layout of an input has the same answer:
/// the last one is kept, and so is its input for the next quantizer.
const Reference& reference(const QuantCase& quantizer, const Problem& problem) {
  static Reference last;
  static std::string input, answer;
  const std::string wanted = problem.input + " " + std::to_string(problem.rows) + "x" +
                             std::to_string(problem.cols) + " " + std::string(name_of(problem.dtype));
  if (input != wanted) {
    last.x = oracle::make_input(problem.input, problem.rows, problem.cols);
    if (problem.dtype == DType::bf16) last.x = oracle::rounded_to_bf16(last.x);
    input = wanted;
  }
  if (answer != wanted + " " + quantizer.name) {
    last.result =
        oracle::quantize(last.x, problem.rows, problem.cols, to_oracle(quantizer.spec), to_oracle(kRandom));
    answer = wanted + " " + quantizer.name;
  }
  return last;
}

void expect_equal_to_oracle(Backend& backend, const QuantCase& quantizer, const Problem& problem) {
  SCOPED_TRACE(quantizer.name + " " + problem.input + " " + std::to_string(problem.rows) + "x" +
               std::to_string(problem.cols) + " " + std::string(name_of(problem.dtype)) + " layout " +
               std::to_string(static_cast<int>(problem.layout)));
  const auto& [x, expected] = reference(quantizer, problem);
  const Outcome outcome = run(backend, x, problem, quantizer.spec);

  EXPECT_TRUE(same(bytes_of<std::uint8_t>(outcome.tensor.codes), expected.packed));
  if (quantizer.spec.format == Format::fp8)
    EXPECT_TRUE(same(bytes_of<float>(outcome.tensor.scales), expected.scales));
  else
    EXPECT_TRUE(same(bytes_of<std::uint8_t>(outcome.tensor.scales), expected.scale_bytes));
  EXPECT_EQ(outcome.stats.non_finite, expected.non_finite);
  if (expected.non_finite > 0) {
    EXPECT_TRUE(std::isnan(outcome.tensor.amax));
    return;
  }
  EXPECT_EQ(bits(outcome.tensor.amax), bits(expected.amax));
  EXPECT_EQ(bits(outcome.stats.amax), bits(expected.amax));
  expect_statistics(outcome.stats, expected, problem.rows * problem.cols);

  std::vector<float> decoded(x.size());
  backend.dequantize(outcome.tensor, mutable_view_of(decoded.data(), problem.rows, problem.cols));
  EXPECT_TRUE(same(decoded, expected.decoded));
}

bool fits(const QuantSpec& spec, std::int64_t rows, std::int64_t cols) {
  return (spec.hadamard == 0 || cols % spec.hadamard == 0) && (spec.block.rows != 16 || rows % 16 == 0);
}

// ---------------------------------------------------------------------------------------------------------------------

using Parameters = std::tuple<std::string, QuantCase>;

std::string case_name(const ::testing::TestParamInfo<Parameters>& test) {
  return std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
}

class Quantize : public ::testing::TestWithParam<Parameters> {
 protected:
  Backend& backend(int threads = 0) { return testing::backend(std::get<0>(GetParam()), threads); }
  const QuantCase& quantizer() { return std::get<1>(GetParam()); }
};

TEST_P(Quantize, EqualsTheOracleOnEveryKindOfInput) {
  for (const std::string& input : oracle::input_kinds())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Layout layout : {Layout::rows, Layout::transposed, Layout::transposed_in_place})
        expect_equal_to_oracle(backend(), quantizer(), {input, 48, 256, dtype, layout});
}

TEST_P(Quantize, EqualsTheOracleOnOddShapes) {
  constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{16, 16},   {256, 272}, {304, 304}, {320, 256},
                                                               {16, 4096}, {4096, 16}, {1, 16},    {5, 48},
                                                               {130, 400}, {7, 1024}};
  for (const auto& [rows, cols] : kShapes) {
    if (!fits(quantizer().spec, rows, cols)) continue;
    for (const Layout layout : {Layout::rows, Layout::transposed, Layout::transposed_in_place})
      expect_equal_to_oracle(backend(), quantizer(), {"heavy_tailed", rows, cols, DType::f32, layout});
    expect_equal_to_oracle(backend(), quantizer(), {"outlier", rows, cols, DType::bf16, Layout::rows});
  }
}

TEST_P(Quantize, IsTheSameFromOneThreadAndFromMany) {
  const Problem problem{"heavy_tailed", 336, 512};
  const std::vector<float> x = oracle::make_input(problem.input, problem.rows, problem.cols);
  const Outcome one = run(backend(1), x, problem, quantizer().spec);
  for (const int threads : {2, 3, 7}) {
    const Outcome many = run(backend(threads), x, problem, quantizer().spec);
    EXPECT_TRUE(same(bytes_of<std::uint8_t>(many.tensor.codes), bytes_of<std::uint8_t>(one.tensor.codes)));
    EXPECT_TRUE(same(bytes_of<std::uint8_t>(many.tensor.scales), bytes_of<std::uint8_t>(one.tensor.scales)));
    EXPECT_EQ(many.stats.signal, one.stats.signal);
    EXPECT_EQ(many.stats.noise, one.stats.noise);
  }
}

/// On a GPU kernels that find maxima on the way to statistics are not those that find them without.
TEST_P(Quantize, TelemetryChangesNoCode) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Layout layout : {Layout::rows, Layout::transposed_in_place}) {
      const Problem problem{"gaussian", 64, 512, dtype, layout};
      const std::vector<float> x = oracle::make_input(problem.input, problem.rows, problem.cols);
      const Outcome full = run(backend(), x, problem, quantizer().spec, Telemetry::full);
      const Outcome sampled = run(backend(), x, problem, quantizer().spec, Telemetry::sampled);
      const Outcome none = run(backend(), x, problem, quantizer().spec, Telemetry::none);
      for (const Outcome* other : {&sampled, &none}) {
        EXPECT_TRUE(
            same(bytes_of<std::uint8_t>(other->tensor.codes), bytes_of<std::uint8_t>(full.tensor.codes)));
        EXPECT_TRUE(
            same(bytes_of<std::uint8_t>(other->tensor.scales), bytes_of<std::uint8_t>(full.tensor.scales)));
      }
      EXPECT_EQ(none.stats.measured, 0);
      EXPECT_GT(sampled.stats.measured, 0);
      EXPECT_LT(sampled.stats.measured, full.stats.measured);
      EXPECT_NEAR(sampled.stats.sqnr_db(), full.stats.sqnr_db(), 1.0);
    }
}

TEST_P(Quantize, ReportsAndPoisonsNonFiniteInput) {
  const Problem problem{"gaussian", 48, 256};
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = oracle::make_input(problem.input, problem.rows, problem.cols);
    x[1234] = bad;
    const Outcome outcome = run(backend(), x, problem, quantizer().spec);
    EXPECT_GE(outcome.stats.non_finite, 1);
    std::vector<float> decoded(x.size());
    backend().dequantize(outcome.tensor, mutable_view_of(decoded.data(), problem.rows, problem.cols));
    for (const float value : decoded) ASSERT_TRUE(std::isnan(value));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Quantize,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::ValuesIn(quant_cases())),
                         case_name);

// ---------------------------------------------------------------------------------------------------------------------

class QuantizeLarge : public Quantize {};

/// Enough for every thread to have several parts; and on a device, for every multiprocessor.
TEST_P(QuantizeLarge, EqualsTheOracle) {
  const std::int64_t extent = backend().name() == "cpu" ? 1024 : 4096;
  expect_equal_to_oracle(backend(), quantizer(), {"outlier", extent, extent, DType::bf16, Layout::rows});
}

std::vector<QuantCase> large_cases() {
  std::vector<QuantCase> chosen;
  for (const QuantCase& quantizer : quant_cases())
    for (const std::string_view name : {"nvfp4", "nvfp4_2d", "nvfp4_rht16_sr", "nvfp4_2d_search",
                                        "nvfp4_search", "mxfp4", "fp8", "fp8_2d", "fp8_tensor"})
      if (quantizer.name == name) chosen.push_back(quantizer);
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeLarge,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::ValuesIn(large_cases())),
                         case_name);

// ---------------------------------------------------------------------------------------------------------------------

class QuantizeParts : public ::testing::TestWithParam<std::string> {};

class QuantizeRandomParts
    : public ::testing::TestWithParam<std::tuple<std::string, std::pair<std::string, QuantSpec>>> {};

TEST_P(QuantizeRandomParts, DoNotDependOnHowATensorIsSplit) {
  Backend& device = backend(std::get<0>(GetParam()));
  constexpr std::int64_t kRows = 64, kCols = 256, kRowSplit = 24, kColSplit = 96;
  const std::vector<float> x = oracle::make_input("gaussian", kRows, kCols);
  const QuantSpec spec = std::get<1>(GetParam()).second;
  QuantizedTensor whole;
  device.quantize(view_of(x.data(), kRows, kCols), spec, {.random = kRandom}, whole);

  for (const std::int64_t row : {std::int64_t{0}, kRowSplit})
    for (const std::int64_t col : {std::int64_t{0}, kColSplit}) {
      const std::int64_t rows = row == 0 ? kRowSplit : kRows - kRowSplit;
      const std::int64_t cols = col == 0 ? kColSplit : kCols - kColSplit;
      const MatrixView view{x.data() + row * kCols + col, DType::f32, rows, cols, kCols, 1};
      QuantizedTensor part;
      device.quantize(view, spec, {.random = kRandom, .part = {row, col, kCols}, .amax = whole.amax}, part);
      for (std::int64_t r = 0; r < rows; ++r) {
        ASSERT_EQ(
            std::memcmp(part.codes.data() + r * cols / 2, whole.codes.data() + ((row + r) * kCols + col) / 2,
                        static_cast<std::size_t>(cols / 2)),
            0);
        ASSERT_EQ(std::memcmp(part.scales.data() + r * cols / 16,
                              whole.scales.data() + ((row + r) * kCols + col) / 16,
                              static_cast<std::size_t>(cols / 16)),
                  0);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, QuantizeRandomParts,
    ::testing::Combine(::testing::ValuesIn(backend_names()),
                       ::testing::Values(std::pair("sr", QuantSpec{.rounding = Rounding::stochastic}),
                                         std::pair("eden",
                                                   QuantSpec{.hadamard = 16, .scaling = Scaling::eden}))),
    [](const auto& test) { return std::get<0>(test.param) + "_" + std::get<1>(test.param).first; });

TEST_P(QuantizeParts, RandomBitsDifferBetweenSeedsStepsMicrobatchesAndTensors) {
  Backend& device = backend(GetParam());
  const std::vector<float> x = oracle::make_input("gaussian", 64, 64);
  const auto codes = [&](const RandomStream& random) {
    QuantizedTensor tensor;
    device.quantize(view_of(x.data(), 64, 64), {.rounding = Rounding::stochastic}, {.random = random},
                    tensor);
    return bytes_of<std::uint8_t>(tensor.codes);
  };
  const auto base = codes({.seed = 1});
  EXPECT_EQ(base, codes({.seed = 1}));
  for (const RandomStream& other :
       {RandomStream{.seed = 2}, RandomStream{.seed = 1ull << 32 | 1}, RandomStream{.seed = 1, .step = 1},
        RandomStream{.seed = 1, .microbatch = 1}, RandomStream{.seed = 1, .tensor = 1}})
    EXPECT_NE(base, codes(other));
}

TEST_P(QuantizeParts, TransposedSquareBlocksAreTheQuantizedTranspose) {
  Backend& device = backend(GetParam());
  constexpr std::int64_t kRows = 304, kCols = 272;
  const std::vector<float> x = oracle::make_input("heavy_tailed", kRows, kCols);
  for (const QuantSpec& spec :
       {QuantSpec{.block = {16, 16}}, QuantSpec{.block = {16, 16}, .scaling = Scaling::search},
        QuantSpec{.format = Format::mxfp4, .block = {32, 32}},
        QuantSpec{.format = Format::fp8, .block = {128, 128}}}) {
    QuantizedTensor tensor;
    QuantizedTensor expected;
    device.quantize(view_of(x.data(), kRows, kCols), spec, {}, tensor);
    device.quantize(view_of(x.data(), kRows, kCols).transposed(), spec, {}, expected);
    const QuantizedTensor actual = transposed(tensor);
    EXPECT_EQ(actual.rows, kCols);
    EXPECT_EQ(actual.amax, expected.amax);
    EXPECT_TRUE(same(bytes_of<std::uint8_t>(actual.codes), bytes_of<std::uint8_t>(expected.codes)));
    EXPECT_TRUE(same(bytes_of<std::uint8_t>(actual.scales), bytes_of<std::uint8_t>(expected.scales)));
  }
}

TEST_P(QuantizeParts, EmptyMatricesAreFine) {
  Backend& device = backend(GetParam());
  for (const QuantCase& quantizer : quant_cases()) {
    QuantizedTensor tensor;
    const QuantStats stats = device.quantize(view_of<float>(nullptr, 0, 256), quantizer.spec, {}, tensor);
    EXPECT_EQ(stats.amax, 0.0f);
    EXPECT_EQ(tensor.codes.size(), 0u);
  }
}

TEST_P(QuantizeParts, RefusesWhatItCannotDo) {
  Backend& device = backend(GetParam());
  const std::vector<float> x(64 * 64);
  QuantizedTensor out;
  const auto quantize = [&](std::int64_t rows, std::int64_t cols, const QuantSpec& spec) {
    device.quantize(view_of(x.data(), rows, cols), spec, {}, out);
  };
  EXPECT_THROW(quantize(16, 20, {}), Error);
  EXPECT_THROW(quantize(20, 16, {.axis = 0}), Error);
  EXPECT_THROW(quantize(20, 16, {.block = {16, 16}}), Error);
  EXPECT_THROW(quantize(16, 48, {.hadamard = 32}), Error);
  EXPECT_THROW(quantize(16, 48, {.hadamard = 12}), Error);
  EXPECT_THROW(quantize(16, 32, {.block = {1, 32}}), Error);
  EXPECT_THROW(quantize(16, 32, {.format = Format::mxfp4, .block = {1, 32}, .scaling = Scaling::search}),
               Error);
  EXPECT_THROW(quantize(16, 32, {.scaling = Scaling::up}), Error);
  EXPECT_THROW(quantize(16, 32, {.scaling = Scaling::eden}), Error);
  EXPECT_THROW(quantize(16, 32, {.block = {16, 16}, .hadamard = 16, .scaling = Scaling::eden}), Error);
  EXPECT_THROW(quantize(16, 32, {.rounding = Rounding::stochastic, .hadamard = 16, .scaling = Scaling::eden}),
               Error);
  EXPECT_THROW(quantize(16, 32, {.axis = 2}), Error);
  const MatrixView integers{x.data(), DType::i32, 16, 16, 16, 1};
  EXPECT_THROW(device.quantize(integers, {}, {}, out), Error);
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeParts, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::quantize_test
