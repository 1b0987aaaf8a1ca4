// SPDX-License-Identifier: Apache-2.0
// Quantizers of the C interface: the bytes of the backend, for every quantizer; and what is refused.

#include <cfenv>
#include <cstddef>
#include <cstring>
#include <thread>

#include "c/interface.h"
#include "oracle/inputs.h"
#include "support/quant_cases.h"

namespace tetrad::testing::c_quantize_test {
namespace {

constexpr std::int64_t kRows = 128;
constexpr std::int64_t kCols = 256;

tetrad_quantizer to_c(const QuantSpec& spec) {
  return {sizeof(tetrad_quantizer),
          static_cast<std::int32_t>(spec.format) + TETRAD_NVFP4,
          static_cast<std::int32_t>(spec.block.rows),
          static_cast<std::int32_t>(spec.block.cols),
          spec.axis,
          static_cast<std::int32_t>(spec.rounding),
          spec.hadamard,
          spec.signs.word[0] & 0xFFFFu,
          static_cast<std::int32_t>(spec.scaling),
          {spec.signs.word[0], spec.signs.word[1], spec.signs.word[2], spec.signs.word[3]}};
}

class CQuantize : public CInterface {
 protected:
  struct Quantized {
    tetrad_layout layout = {};
    Buffer codes, scales, amax;
    tetrad_quantized memory = {};
  };

  Quantized room(const tetrad_quantizer& quantizer, std::int64_t rows, std::int64_t cols) {
    Quantized out;
    out.layout.struct_size = sizeof(out.layout);
    expect_ok(tetrad_quantized_layout(&quantizer, rows, cols, &out.layout));
    out.codes = memory(static_cast<std::size_t>(out.layout.code_bytes));
    out.scales = memory(static_cast<std::size_t>(out.layout.scale_bytes));
    out.amax = memory(sizeof(float));
    out.memory = {sizeof(out.memory), out.codes.data(),  out.codes.size(),
                  out.scales.data(),  out.scales.size(), out.amax.as<float>()};
    return out;
  }
};

TEST_P(CQuantize, GivesTheBytesOfTheBackend) {
  const std::vector<float> values = oracle::make_input("gaussian", kRows, kCols);
  Buffer x = upload(values);
  tetrad_quantize_options options = {};
  options.struct_size = sizeof(options);
  options.random = {0x123456789abcull, 5, 3, 77, 0};
  for (const QuantCase& quant_case : quant_cases())
    for (const int axis : {0, 1}) {
      SCOPED_TRACE(quant_case.name + " axis " + std::to_string(axis));
      QuantSpec spec = quant_case.spec;
      spec.axis = axis;
      const tetrad_quantizer quantizer = to_c(spec);
      Quantized out = room(quantizer, kRows, kCols);
      const tetrad_matrix input = matrix(x, kRows, kCols);
      tetrad_quantize_stats stats = {};
      stats.struct_size = sizeof(stats);
      expect_ok(tetrad_quantize(context_, &input, &quantizer, &options, &out.memory, &stats));

      QuantizedTensor expected;
      const QuantStats measured = backend_->quantize(
          {x.data(), DType::f32, kRows, kCols, kCols, 1}, spec,
          {.random = {0x123456789abcull, 5, 3, 77}, .telemetry = Telemetry::full}, expected);
      EXPECT_EQ(download(out.codes), download(expected.codes));
      EXPECT_EQ(download(out.scales), download(expected.scales));
      float amax = 0;
      std::memcpy(&amax, download(out.amax).data(), sizeof(amax));
      EXPECT_EQ(amax, expected.amax);
      EXPECT_EQ(stats.noise, measured.noise);
      EXPECT_EQ(stats.elements, kRows * kCols);

      Buffer decoded = memory(kRows * kCols * sizeof(float));
      const std::int64_t rows = out.layout.rows, cols = out.layout.cols;
      const tetrad_matrix output = matrix(decoded, rows, cols);
      expect_ok(tetrad_dequantize(context_, &quantizer, &out.memory, &output));
      Buffer wanted = memory(decoded.size());
      backend_->dequantize(expected, {wanted.data(), DType::f32, rows, cols, cols, 1});
      backend_->synchronize();
      EXPECT_EQ(download(decoded), download(wanted));
    }
}

TEST_P(CQuantize, APartOfATensorHasTheBytesOfTheWhole) {
  const std::vector<float> values = oracle::make_input("gaussian", kRows, kCols);
  Buffer x = upload(values);
  tetrad_quantizer quantizer;
  expect_ok(tetrad_quantizer_init(&quantizer, sizeof(quantizer), "nvfp4", nullptr, "stochastic"));
  Quantized whole = room(quantizer, kRows, kCols);
  const tetrad_matrix all = matrix(x, kRows, kCols);
  expect_ok(tetrad_quantize(context_, &all, &quantizer, nullptr, &whole.memory, nullptr));
  float amax = 0;
  std::memcpy(&amax, download(whole.amax).data(), sizeof(amax));

  constexpr std::int64_t kHalf = kRows / 2;
  tetrad_matrix lower = all;
  lower.data = x.as<float>() + kHalf * kCols;
  lower.rows = kHalf;
  Quantized part = room(quantizer, kHalf, kCols);
  tetrad_quantize_options options = {};
  options.struct_size = sizeof(options);
  options.amax = &amax;
  options.first_row = kHalf;
  expect_ok(tetrad_quantize(context_, &lower, &quantizer, &options, &part.memory, nullptr));
  const std::vector<std::byte> expected = download(whole.codes);
  EXPECT_EQ(download(part.codes),
            std::vector<std::byte>(expected.begin() + static_cast<std::ptrdiff_t>(expected.size() / 2),
                                   expected.end()));
}

TEST_P(CQuantize, NamesAreThoseOfTheProgram) {
  tetrad_quantizer quantizer;
  expect_ok(tetrad_quantizer_init(&quantizer, sizeof(quantizer), "fp8", "128x128", "stochastic-hardware"));
  EXPECT_EQ(quantizer.format, TETRAD_FP8);
  EXPECT_EQ(quantizer.block_rows, 128);
  EXPECT_EQ(quantizer.rounding, TETRAD_STOCHASTIC_HARDWARE);
  EXPECT_EQ(quantizer.signs, TETRAD_FIXED_SIGNS);
  expect_refused(tetrad_quantizer_init(&quantizer, sizeof(quantizer), "int4", nullptr, nullptr), "int4");
  expect_refused(tetrad_quantizer_init(&quantizer, sizeof(quantizer), nullptr, nullptr, nullptr), "NULL");
}

TEST_P(CQuantize, RefusesWhatMakesNoSense) {
  Buffer x = upload(oracle::make_input("gaussian", 32, 64));
  tetrad_quantizer quantizer;
  expect_ok(tetrad_quantizer_init(&quantizer, sizeof(quantizer), "nvfp4", nullptr, nullptr));
  Quantized out = room(quantizer, 32, 64);
  const tetrad_matrix good = matrix(x, 32, 64);
  const auto quantize = [&](const tetrad_matrix* input) {
    return tetrad_quantize(context_, input, &quantizer, nullptr, &out.memory, nullptr);
  };
  expect_ok(quantize(&good));
  expect_refused(quantize(nullptr), "x is NULL");
  tetrad_matrix bad = good;
  bad.dtype = 9;
  expect_refused(quantize(&bad), "dtype");
  bad = good;
  bad.row_stride = 63;
  expect_refused(quantize(&bad), "strides");
  bad = good;
  bad.data = nullptr;
  expect_refused(quantize(&bad), "NULL");
  bad = good;
  bad.rows = 16;
  expect_refused(quantize(&bad), "tetrad_quantized_layout");
  bad = good;
  bad.cols = 40;
  expect_refused(quantize(&bad), "multiple of 16");
  quantizer.format = 4;
  expect_refused(quantize(&good), "format");
  quantizer.format = TETRAD_MXFP4;
  expect_refused(quantize(&good), "1x16");
  quantizer.struct_size = 0;
  expect_refused(quantize(&good), "struct_size");
  expect_refused(tetrad_synchronize(nullptr), "context is NULL");
}

TEST_P(CQuantize, StructsOfOtherVersionsAreRead) {
  struct {
    tetrad_quantizer known;
    std::int64_t later;
  } newer = {};
  expect_ok(tetrad_quantizer_init(&newer.known, sizeof(newer), "nvfp4", nullptr, nullptr));
  EXPECT_EQ(newer.known.struct_size, sizeof(newer));
  tetrad_layout layout = {};
  layout.struct_size = sizeof(layout);
  expect_ok(tetrad_quantized_layout(&newer.known, 16, 64, &layout));
  EXPECT_EQ(layout.code_bytes, 16 * 32);
  newer.later = 1;
  expect_refused(tetrad_quantized_layout(&newer.known, 16, 64, &layout), "does not know");

  // One that ends before its last members: they are zero, and what is not there is not written.
  newer.later = 0;
  newer.known.struct_size = offsetof(tetrad_quantizer, scale);
  newer.known.scale = TETRAD_SCALE_4_6;
  tetrad_layout shorter = {};
  shorter.struct_size = offsetof(tetrad_layout, scale_rows);
  shorter.scale_rows = -7;
  expect_ok(tetrad_quantized_layout(&newer.known, 16, 64, &shorter));
  EXPECT_EQ(shorter.code_bytes, 16 * 32);
  EXPECT_EQ(shorter.scale_rows, -7);
}

TEST_P(CQuantize, MessagesBelongToTheirThread) {
  expect_refused(tetrad_synchronize(nullptr), "context");
  const std::string before = tetrad_last_error();
  std::thread([] {
    EXPECT_STREQ(tetrad_last_error(), "");
    EXPECT_EQ(tetrad_quantized_layout(nullptr, 1, 1, nullptr), TETRAD_BAD_INPUT);
    EXPECT_NE(std::string(tetrad_last_error()).find("quantizer"), std::string::npos);
  }).join();
  EXPECT_EQ(tetrad_last_error(), before);
}

/// Frameworks call from threads that flush subnormals to zero or round otherwise.
TEST_P(CQuantize, TheFloatingPointEnvironmentIsTheCallersAgain) {
  std::vector<float> values(16 * 64, 1e-40f);  // subnormal
  Buffer x = upload(values);
  tetrad_quantizer quantizer;
  expect_ok(tetrad_quantizer_init(&quantizer, sizeof(quantizer), "fp8", nullptr, nullptr));
  Quantized expected = room(quantizer, 16, 64);
  Quantized out = room(quantizer, 16, 64);
  const tetrad_matrix input = matrix(x, 16, 64);
  expect_ok(tetrad_quantize(context_, &input, &quantizer, nullptr, &expected.memory, nullptr));

  std::fenv_t before;
  std::fegetenv(&before);
  std::fesetround(FE_UPWARD);
#ifdef __SSE__
  const unsigned flags = __builtin_ia32_stmxcsr() | 0x8040u;  // flush to zero, subnormals are zero
  __builtin_ia32_ldmxcsr(flags);
#endif
  const tetrad_status status = tetrad_quantize(context_, &input, &quantizer, nullptr, &out.memory, nullptr);
  const int rounding = std::fegetround();
#ifdef __SSE__
  const unsigned after = __builtin_ia32_stmxcsr();
#endif
  std::fesetenv(&before);
  expect_ok(status);
  EXPECT_EQ(rounding, FE_UPWARD);
#ifdef __SSE__
  EXPECT_EQ(after & 0x8040u, 0x8040u);
#endif
  EXPECT_EQ(download(out.codes), download(expected.codes));
  EXPECT_EQ(download(out.scales), download(expected.scales));
  EXPECT_NE(download(out.codes)[0], std::byte{0});
}

INSTANTIATE_TEST_SUITE_P(All, CQuantize, ::testing::ValuesIn(context_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tetrad::testing::c_quantize_test
