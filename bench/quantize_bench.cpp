// SPDX-License-Identifier: Apache-2.0
#include "benchmarks.h"
#include "random_data.h"

namespace tetrad::bench {
namespace {

struct Case {
  QuantSpec spec;
  QuantizeOptions options = {.telemetry = Telemetry::none};
  bool amax_given = false;  //!< the input's amax is given, as after an activation
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
          {{.block = {1, 16}, .scaling = Scaling::four_six}},
          {{.block = {1, 16}, .scaling = Scaling::search}},
          {{.block = {1, 16}, .scaling = Scaling::search}, kOperand},
          {{.block = {1, 16}, .axis = 0, .scaling = Scaling::search}, kInPlace},
          {{.block = {1, 16}, .hadamard = 128, .scaling = Scaling::eden}, kOperand},
          {{.block = {1, 16}, .axis = 0, .hadamard = 128, .scaling = Scaling::eden}, kOperandInPlace},
          {{.format = Format::mxfp4, .block = {1, 32}}},
          {{.format = Format::fp8, .block = {1, 128}}},
          {{.format = Format::fp8, .block = {128, 128}}}};
}

std::string name_of(const Case& test) {
  std::string name = describe(test.spec);
  if (test.options.order == CodeOrder::col_major) name += ", in place";
  if (test.options.form == Form::operand) name += ", as operand";
  if (test.amax_given) name += ", amax given";
  if (test.options.telemetry == Telemetry::sampled) name += ", telemetry";
  if (test.options.telemetry == Telemetry::full) name += ", full telemetry";
  return name;
}

/// What the producer of x would report: the amax of x, and of x transformed along the tokens.
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

/// The two quantized copies a linear layer needs of its input or output gradient, made in one call.
struct PairOfForms {
  const char* name;
  QuantSpec rows, columns;
  Form column_form;
};
std::vector<PairOfForms> pairs_of_forms() {
  constexpr auto kSr = Rounding::stochastic;
  const QuantSpec fp8{.format = Format::fp8, .block = {1, 128}};
  const QuantSpec fp8_columns{.format = Format::fp8, .block = {1, 128}, .axis = 0};
  return {{"x of an nvfp4 layer, rows and columns",
           {.block = {1, 16}},
           {.block = {1, 16}, .axis = 0, .hadamard = 16},
           Form::packed},
          {"x of a tetrad layer, rows and columns",
           {.block = {1, 16}, .scaling = Scaling::search},
           {.block = {1, 16}, .axis = 0, .hadamard = 16},
           Form::packed},
          {"dy of an nvfp4 layer, rows and columns",
           {.block = {1, 16}, .rounding = kSr},
           {.block = {1, 16}, .axis = 0, .rounding = kSr, .hadamard = 16},
           Form::operand},
          {"x of an fp8 layer, rows and columns", fp8, fp8_columns, Form::packed}};
}

}  // namespace

void quantize(Backend& backend, std::int64_t rows, std::int64_t cols, DType dtype, int repeats,
              const Report& report) {
  const Tensor x = random_tensor(backend, dtype, rows, cols, 1);
  Tensor copy = backend.make_tensor(dtype, rows, cols);
  const auto bytes = static_cast<double>(x.bytes().size());
  Tensor amax = amax_of(backend, x.const_view());
  const AmaxReport given{amax.f32(), backend.name() != "cpu"};
  for (Case test : cases()) {
    const std::int64_t along = test.spec.axis == 1 ? cols : rows;
    if (test.spec.hadamard > 0 && along % test.spec.hadamard != 0) continue;
    if (test.amax_given && !given.known) continue;
    if (test.amax_given) test.options.input = &given;
    QuantizedTensor out;
    const Pair seconds = Stopwatch(backend, repeats)
                             .measure([&] { backend.quantize(x.const_view(), test.spec, test.options, out); },
                                      [&] { backend.copy(x.bytes(), copy.bytes()); });
    const auto written = static_cast<double>(out.codes.size() + out.scales.size());
    report({name_of(test), "GB/s", 1e-9 * (bytes + written) / seconds.work, 2e-9 * bytes / seconds.ceiling,
            "copy"});
  }
  for (const PairOfForms& forms : pairs_of_forms())
    for (const bool amax_given : {false, true}) {
      if (amax_given && (!given.known || forms.rows.format != Format::nvfp4)) continue;
      const auto options = [&](const QuantSpec& spec, Form form) {
        return QuantizeOptions{.order = backend.preferred_order(spec),
                               .form = form,
                               .telemetry = Telemetry::none,
                               .input = amax_given ? &given : nullptr};
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
      report({std::string(forms.name) + (amax_given ? ", amax given" : ""), "GB/s",
              1e-9 * moved / seconds.work, 2e-9 * bytes / seconds.ceiling, "copy"});
    }
}

}  // namespace tetrad::bench
