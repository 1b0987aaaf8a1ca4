// SPDX-License-Identifier: Apache-2.0
// Two quantized copies of one matrix at a time, and a quantizer given the input's amax: each must give, byte
// for byte, what quantize_test.cpp holds to the oracle.

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "support/aligned_matrix.h"
#include "support/backends.h"

namespace tetrad::testing::quantize_forms_test {
namespace {

constexpr RandomStream kRandom{.seed = 99, .step = 5, .microbatch = 1, .tensor = 12};
constexpr auto kSr = Rounding::stochastic;

class QuantizeForms : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam()); }

  QuantizeOptions options(const QuantSpec& spec, Form form) {
    return {.random = kRandom,
            .order = device().preferred_order(spec),
            .form = form,
            .telemetry = Telemetry::none};
  }
};

::testing::AssertionResult same_bytes(const Buffer& actual, const Buffer& expected) {
  if (actual.size() != expected.size())
    return ::testing::AssertionFailure() << actual.size() << " bytes, not " << expected.size();
  for (std::size_t i = 0; i < actual.size(); ++i)
    if (actual.data()[i] != expected.data()[i])
      return ::testing::AssertionFailure() << "byte " << i << " of " << actual.size() << " differs";
  return ::testing::AssertionSuccess();
}

void expect_same(const QuantizedTensor& actual, const QuantizedTensor& expected) {
  EXPECT_TRUE(same_bytes(actual.codes, expected.codes)) << "codes";
  EXPECT_TRUE(same_bytes(actual.scales, expected.scales)) << "scales";
  EXPECT_EQ(std::bit_cast<std::uint32_t>(actual.amax), std::bit_cast<std::uint32_t>(expected.amax))
      << actual.amax << ", not " << expected.amax;
}

/// The forms that a linear layer asks for: of x, whose second form waits for the backward pass, and of dy;
/// and codes, which are what an operand is where they are multiplied as they are.
struct Forms {
  std::string name;
  QuantSpec rows, columns;
  Form column_form;
  Form row_form = Form::operand;
};
std::vector<Forms> forms() {
  const auto along_tokens = [](QuantSpec spec) {
    spec.axis = 0;
    return spec;
  };
  const QuantSpec plain{.block = {1, 16}};
  const QuantSpec stochastic{.block = {1, 16}, .rounding = kSr};
  const QuantSpec mx{.format = Format::mxfp4, .block = {1, 32}};
  const QuantSpec fp8{.format = Format::fp8, .block = {1, 128}};
  return {
      {"x of nvfp4", plain, along_tokens({.block = {1, 16}, .hadamard = 16}), Form::packed},
      {"dy of nvfp4", stochastic, along_tokens({.block = {1, 16}, .rounding = kSr, .hadamard = 16}),
       Form::operand},
      {"no transform", stochastic, along_tokens(plain), Form::packed},
      {"codes of x", plain, along_tokens({.block = {1, 16}, .hadamard = 16}), Form::packed, Form::packed},
      {"codes of dy", stochastic, along_tokens({.block = {1, 16}, .rounding = kSr, .hadamard = 16}),
       Form::packed, Form::packed},
      {"4/6",
       {.block = {1, 16}, .scaling = Scaling::four_six},
       along_tokens({.block = {1, 16}, .hadamard = 16}),
       Form::packed},
      {"x of tetrad",
       {.block = {1, 16}, .scaling = Scaling::search},
       along_tokens({.block = {1, 16}, .hadamard = 16}),
       Form::packed},
      {"search both ways",
       {.block = {1, 16}, .scaling = Scaling::search},
       along_tokens({.block = {1, 16}, .hadamard = 16, .scaling = Scaling::search}),
       Form::packed,
       Form::packed},
      {"4/6 of dy",
       {.block = {1, 16}, .rounding = kSr, .scaling = Scaling::four_six},
       along_tokens({.block = {1, 16}, .rounding = kSr, .hadamard = 16, .scaling = Scaling::four_six}),
       Form::operand},
      {"search of one, rounded otherwise than the other",
       {.block = {1, 16}, .scaling = Scaling::search},
       along_tokens({.block = {1, 16}, .rounding = kSr}),
       Form::packed},
      {"eden both ways",
       {.block = {1, 16}, .hadamard = 32, .scaling = Scaling::eden},
       along_tokens({.block = {1, 16}, .hadamard = 32, .scaling = Scaling::eden}),
       Form::operand},
      {"eden of one",
       {.block = {1, 16}, .scaling = Scaling::search},
       along_tokens({.block = {1, 16}, .hadamard = 32, .scaling = Scaling::eden}),
       Form::packed},
      {"other signs", plain, along_tokens({.block = {1, 16}, .hadamard = 16, .signs = kNoSigns}),
       Form::operand},
      {"mxfp4", mx, along_tokens({.format = Format::mxfp4, .block = {1, 32}, .rounding = kSr}), Form::packed},
      {"fp8", fp8, along_tokens(fp8), Form::packed},
  };
}

TEST_P(QuantizeForms, TwoAtATimeAreThoseOfEach) {
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{32, 32}, {64, 160}, {256, 128}, {32, 544}}) {
    Values values = normal_values(rows * cols, 1);
    for (const bool poisoned : {false, true}) {
      if (poisoned) values[77] = std::numeric_limits<double>::infinity();
      const AlignedMatrix<Bf16> x(rows, cols, values);
      for (const Forms& form : forms()) {
        SCOPED_TRACE(form.name + ", " + std::to_string(rows) + " x " + std::to_string(cols) +
                     (poisoned ? ", not finite" : ""));
        const QuantizeOptions first = options(form.rows, form.row_form);
        const QuantizeOptions second = options(form.columns, form.column_form);
        QuantizedTensor expected[2];
        QuantizedTensor actual[2];
        device().quantize(x.view(), form.rows, first, expected[0]);
        device().quantize(x.view(), form.columns, second, expected[1]);
        device().quantize(x.view(), {form.rows, first, actual[0]}, {form.columns, second, actual[1]});
        expect_same(actual[0], expected[0]);
        expect_same(actual[1], expected[1]);
      }
    }
  }
}

/// An activation that was asked for a report: forward or backward.
struct Produced {
  AlignedMatrix<Bf16> matrix;
  float values[2] = {};
  AmaxReport report = {};
};

Produced produce(Backend& device, Activation kind, bool backward, std::int64_t rows, std::int64_t width,
                 const Values& input, bool with_report) {
  const std::int64_t wide = kind == Activation::swiglu ? 2 * width : width;
  const AlignedMatrix<Bf16> x(rows, wide, input);
  const AlignedMatrix<Bf16> dy(rows, width, normal_values(rows * width, 4));
  Produced result{AlignedMatrix<Bf16>(rows, backward ? wide : width)};
  result.report.values = result.values;
  AmaxReport* report = with_report ? &result.report : nullptr;
  if (backward)
    device.activation(ActivationBackward{kind, x.view(), dy.view(), result.matrix.mutable_view(), report});
  else
    device.activation(ActivationForward{kind, x.view(), result.matrix.mutable_view(), report});
  return result;
}

TEST_P(QuantizeForms, AProducersReportIsWhatTheQuantizerWouldFind) {
  const QuantSpec plain{.block = {1, 16}};
  const QuantSpec stochastic{.block = {1, 16}, .rounding = kSr};
  const QuantSpec turned{.block = {1, 16}, .axis = 0, .rounding = kSr, .hadamard = 16};
  const QuantSpec squares{.block = {16, 16}};
  for (const Activation kind : {Activation::swiglu, Activation::squared_relu})
    for (const bool backward : {false, true})
      for (const bool poisoned : {false, true}) {
        constexpr std::int64_t kRows = 48;
        constexpr std::int64_t kWidth = 160;
        SCOPED_TRACE(std::string(kind == Activation::swiglu ? "swiglu" : "squared ReLU") +
                     (backward ? ", backward" : ", forward") + (poisoned ? ", not finite" : ""));
        Values input = normal_values(kRows * kWidth * (kind == Activation::swiglu ? 2 : 1), 3, 2.0);
        if (poisoned) input[1234] = std::numeric_limits<double>::quiet_NaN();
        Produced told = produce(device(), kind, backward, kRows, kWidth, input, true);
        const Produced untold = produce(device(), kind, backward, kRows, kWidth, input, false);
        EXPECT_TRUE(told.matrix.same_bytes(untold.matrix)) << "a report must not change what is written";
        EXPECT_EQ(told.report.known, device().name() != "cpu");
        told.report.values = told.values;
        for (const QuantSpec& spec : {plain, stochastic, turned, squares}) {
          QuantizeOptions with = options(spec, Form::operand);
          const QuantizeOptions without = with;
          with.input = &told.report;
          QuantizedTensor actual;
          QuantizedTensor expected;
          device().quantize(told.matrix.view(), spec, with, actual);
          device().quantize(told.matrix.view(), spec, without, expected);
          expect_same(actual, expected);
        }
        QuantizeOptions first = options(plain, Form::operand);
        QuantizeOptions second = options(turned, Form::operand);
        QuantizedTensor expected[2];
        QuantizedTensor actual[2];
        device().quantize(told.matrix.view(), {plain, first, expected[0]}, {turned, second, expected[1]});
        first.input = second.input = &told.report;
        device().quantize(told.matrix.view(), {plain, first, actual[0]}, {turned, second, actual[1]});
        expect_same(actual[0], expected[0]);
        expect_same(actual[1], expected[1]);
      }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeForms, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::quantize_forms_test
