// SPDX-License-Identifier: Apache-2.0
#include "benchmarks.h"
#include "random_data.h"

namespace tetrad::bench {
namespace {

struct Case {
  QuantSpec spec;
  QuantizeOptions options = {.telemetry = Telemetry::none};
  bool told = false;  //!< the input's amax by its producer, as after an activation
};

std::vector<Case> cases() {
  constexpr auto kSr = Rounding::stochastic;
  constexpr QuantizeOptions kInPlace{.order = CodeOrder::col_major, .telemetry = Telemetry::none};
  constexpr QuantizeOptions kOperand{.form = Form::operand, .telemetry = Telemetry::none};
  constexpr QuantizeOptions kOperandInPlace{
      .order = CodeOrder::col_major, .form = Form::operand, .telemetry = Telemetry::none};
  return {{{.block = {1, 16}}},
          {{.block = {1, 16}}, kOperand},
          {{.block = {1, 16}}, {.telemetry = Telemetry::sampled}},
          {{.block = {1, 16}}, {.telemetry = Telemetry::full}},
          {{.block = {16, 16}}},
          {{.block = {16, 16}}, kOperand},
          {{.block = {1, 16}, .rounding = kSr}},
          {{.block = {1, 16}, .rounding = kSr}, kOperand},
          {{.block = {1, 16}, .rounding = kSr, .hadamard = 16}},
          {{.block = {1, 16}, .axis = 0}, kInPlace},
          {{.block = {1, 16}, .axis = 0, .hadamard = 16}, kInPlace},
          {{.block = {1, 16}, .axis = 0, .rounding = kSr, .hadamard = 16}, kInPlace},
          {{.block = {1, 16}, .axis = 0, .rounding = kSr, .hadamard = 16}, kOperandInPlace},
          {{.block = {1, 16}}, kOperand, true},
          {{.block = {16, 16}}, kOperand, true},
          {{.block = {1, 16}, .rounding = kSr}, kOperand, true},
          {{.block = {1, 16}, .axis = 0, .hadamard = 16}, kInPlace, true},
          {{.block = {1, 16}, .axis = 0, .rounding = kSr, .hadamard = 16}, kInPlace, true},
          {{.block = {1, 16}, .axis = 0, .rounding = kSr, .hadamard = 16}, kOperandInPlace, true},
          {{.block = {1, 16}, .adaptive = true}},
          {{.format = Format::mxfp4, .block = {1, 32}}},
          {{.format = Format::fp8, .block = {1, 128}}},
          {{.format = Format::fp8, .block = {128, 128}}}};
}

std::string name_of(const Case& test) {
  std::string name = describe(test.spec);
  if (test.options.order == CodeOrder::col_major) name += ", in place";
  if (test.options.form == Form::operand) name += ", as operand";
  if (test.told) name += ", amax told";
  if (test.options.telemetry == Telemetry::sampled) name += ", telemetry";
  if (test.options.telemetry == Telemetry::full) name += ", full telemetry";
  return name;
}

/// What a producer of x would have told: the amax of x, and of x transformed along the tokens.
Tensor amax_of(Backend& backend, const MatrixView& x) {
  const QuantSpec specs[2] = {{.block = {1, 16}}, {.block = {1, 16}, .axis = 0, .hadamard = 16}};
  float amax[2];
  for (int i = 0; i < 2; ++i) {
    QuantizedTensor out;
    amax[i] = backend.quantize(x, specs[i], {.telemetry = Telemetry::sampled}, out).amax;
  }
  Tensor result = backend.make_tensor(DType::f32, 1, 2);
  backend.upload(std::as_bytes(std::span(amax)), result.bytes());
  return result;
}

/// What a linear layer wants of its input, or of the gradient of its output: both forms at a time.
struct PairOfForms {
  const char* name;
  QuantSpec rows, columns;
  Form column_form;
};
std::vector<PairOfForms> pairs_of_forms() {
  constexpr auto kSr = Rounding::stochastic;
  const QuantSpec fp8{.format = Format::fp8, .block = {1, 128}};
  const QuantSpec fp8_columns{.format = Format::fp8, .block = {1, 128}, .axis = 0};
  return {{"x of an nvfp4 layer, both forms",
           {.block = {1, 16}},
           {.block = {1, 16}, .axis = 0, .hadamard = 16},
           Form::packed},
          {"dy of an nvfp4 layer, both forms",
           {.block = {1, 16}, .rounding = kSr},
           {.block = {1, 16}, .axis = 0, .rounding = kSr, .hadamard = 16},
           Form::operand},
          {"x of an fp8 layer, both forms", fp8, fp8_columns, Form::packed}};
}

}  // namespace

void quantize(Backend& backend, std::int64_t rows, std::int64_t cols, DType dtype, int repeats,
              const Report& report) {
  const Tensor x = random_tensor(backend, dtype, rows, cols, 1);
  Tensor copy = backend.make_tensor(dtype, rows, cols);
  const auto bytes = static_cast<double>(x.bytes().size());
  Tensor amax = amax_of(backend, x.const_view());
  const AmaxReport told{amax.f32(), backend.name() != "cpu"};
  for (Case test : cases()) {
    if (test.told && !told.known) continue;
    if (test.told) test.options.input = &told;
    QuantizedTensor out;
    const Pair seconds = Stopwatch(backend, repeats)
                             .measure([&] { backend.quantize(x.const_view(), test.spec, test.options, out); },
                                      [&] { backend.copy(x.bytes(), copy.bytes()); });
    const auto written = static_cast<double>(out.codes.size() + out.scales.size());
    report({name_of(test), "GB/s", 1e-9 * (bytes + written) / seconds.work, 2e-9 * bytes / seconds.ceiling,
            "copy"});
  }
  for (const PairOfForms& forms : pairs_of_forms())
    for (const bool is_told : {false, true}) {
      if (is_told && (!told.known || forms.rows.format != Format::nvfp4)) continue;
      const auto options = [&](const QuantSpec& spec, Form form) {
        return QuantizeOptions{.order = backend.preferred_order(spec),
                               .form = form,
                               .telemetry = Telemetry::none,
                               .input = is_told ? &told : nullptr};
      };
      const QuantizeOptions first = options(forms.rows, Form::operand);
      const QuantizeOptions second = options(forms.columns, forms.column_form);
      QuantizedTensor out[2];
      const Pair seconds = Stopwatch(backend, repeats)
                               .measure(
                                   [&] {
                                     backend.quantize(x.const_view(), {forms.rows, first, out[0]},
                                                      {forms.columns, second, out[1]});
                                   },
                                   [&] { backend.copy(x.bytes(), copy.bytes()); });
      double moved = bytes;
      for (const QuantizedTensor& form : out)
        moved += static_cast<double>(form.codes.size() + form.scales.size());
      report({std::string(forms.name) + (is_told ? ", amax told" : ""), "GB/s", 1e-9 * moved / seconds.work,
              2e-9 * bytes / seconds.ceiling, "copy"});
    }
}

}  // namespace tetrad::bench
