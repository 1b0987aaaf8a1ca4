// SPDX-License-Identifier: Apache-2.0
// Products of every kind of operand with every other, and the linear layer over them.
#include <fmt/format.h>

#include "tetrad/ops/linear.h"
#include "tetrad/selftest/checks.h"
#include "tetrad/selftest/precisions.h"

namespace tetrad::selftest {
namespace {

/// f32 sums in another order, of the largest result: tests/backend hold each backend to (K + 8) 2^-24 of the
/// sum of magnitudes, of which this is the usual size for these depths.
constexpr double kF32Sum = 2e-5;
/// Matrix units for narrow formats may add with fewer bits than f32 has. A wrong scale or code is far beyond.
constexpr double kNarrowSum = 0x1p-9;

/// An operand as it is stored, and how it is used.
struct Kind {
  const char* name;
  std::optional<QuantSpec> spec = {};
  DType dtype = DType::bf16;
  bool transposed = false;
  CodeOrder order = CodeOrder::row_major;
  bool soon = false;  //!< Form::operand, made by the backend itself

  bool is(Format format) const { return spec && spec->format == format; }
};

const std::vector<Kind>& kinds() {
  constexpr auto kMx = Format::mxfp4;
  constexpr auto kFp8 = Format::fp8;
  static const std::vector<Kind> all = {
      {.name = "f32", .dtype = DType::f32},
      {.name = "f32 transposed", .dtype = DType::f32, .transposed = true},
      {.name = "bf16"},
      {.name = "bf16 transposed", .transposed = true},
      {.name = "nvfp4", .spec = QuantSpec{}},
      {.name = "nvfp4 search", .spec = QuantSpec{.scaling = Scaling::search}},
      {.name = "nvfp4 16x16 transposed", .spec = QuantSpec{.block = {16, 16}}, .transposed = true},
      {.name = "nvfp4 along tokens",
       .spec = QuantSpec{.axis = 0, .hadamard = 16},
       .order = CodeOrder::col_major},
      {.name = "nvfp4 operand", .spec = QuantSpec{}, .soon = true},
      {.name = "nvfp4 operand along tokens", .spec = QuantSpec{.axis = 0, .hadamard = 16}, .soon = true},
      {.name = "mxfp4", .spec = QuantSpec{.format = kMx, .block = {1, 32}}},
      {.name = "mxfp4 32x32 transposed",
       .spec = QuantSpec{.format = kMx, .block = {32, 32}},
       .transposed = true},
      {.name = "mxfp4 operand", .spec = QuantSpec{.format = kMx, .block = {1, 32}}, .soon = true},
      {.name = "fp8 1x128", .spec = QuantSpec{.format = kFp8, .block = {1, 128}}},
      {.name = "fp8 128x128", .spec = QuantSpec{.format = kFp8, .block = {128, 128}}},
      {.name = "fp8 128x128 transposed",
       .spec = QuantSpec{.format = kFp8, .block = {128, 128}},
       .transposed = true},
      {.name = "fp8 along tokens", .spec = QuantSpec{.format = kFp8, .block = {1, 128}, .axis = 0}},
      {.name = "fp8 tensor", .spec = QuantSpec{.format = kFp8, .block = BlockShape::whole()}}};
  return all;
}

double product_tolerance(const Kind& a, const Kind& b) {
  const bool narrow =
      (a.is(Format::nvfp4) && b.is(Format::nvfp4)) || (a.is(Format::fp8) && b.is(Format::fp8));
  return narrow ? kNarrowSum : kF32Sum;
}

/// [rows, depth] as the product reads it.
GemmOperand operand(Stage& stage, const Kind& kind, std::int64_t rows, std::int64_t depth) {
  const bool lies_transposed = kind.transposed || (kind.spec && kind.spec->axis == 0);
  const std::int64_t stored_rows = lies_transposed ? depth : rows;
  const std::int64_t stored_cols = lies_transposed ? rows : depth;
  const Matrix& x = kind.dtype == DType::f32 ? stage.draw_f32(stored_rows, stored_cols, 1, 0)
                                             : stage.draw(stored_rows, stored_cols);
  const auto used = [&](const GemmOperand& stored) { return kind.transposed ? stored.transposed() : stored; };
  if (!kind.spec) return used(x.view());
  if (!kind.soon) return used(stage.quantized(x, *kind.spec, kind.order));
  QuantizedTensor& tensor = stage.poisoned_tensor(stored_rows, stored_cols);
  stage.backend().quantize(x.view(), *kind.spec,
                           {.order = stage.backend().preferred_order(*kind.spec),
                            .form = Form::operand,
                            .telemetry = Telemetry::none},
                           tensor);
  return used(tensor);
}

struct Shape {
  std::int64_t m, n, k;
};

void multiply(Stage& stage, const Kind& a, const Kind& b, const Shape& shape) {
  const auto& [m, n, k] = shape;
  const GemmOperand left = operand(stage, a, m, k);
  const GemmOperand right = operand(stage, b, n, k);
  const double near = product_tolerance(a, b);
  Backend& backend = stage.backend();
  backend.gemm(left, right, stage.result_f32("f32", m, n, near).out());
  backend.gemm(left, right, stage.result("bf16", m, n, near).out());
  backend.gemm(left, right, stage.changed("added", stage.draw_f32(m, n, 1, 0), near).out(), Accumulate::yes);
}

/// Forward and backward pass of one layer; all its operands are made anew.
void linear(Stage& stage, const LinearPrecision& precision) {
  constexpr std::int64_t kTokens = 128, kIn = 256, kOut = 384;
  constexpr LinearKey kKey{0x1234567890ull, 3, 2, 6};
  const LinearCall call{stage.backend(), precision, kKey};
  const Matrix& x = stage.draw(kTokens, kIn, 1, 0.2);
  const Matrix& w = stage.draw_f32(kOut, kIn, 0.1, 0);
  const Matrix& dy = stage.draw(kTokens, kOut, 1e-3);
  WeightForm fprop_form, dgrad_form;
  LinearWorkspace workspace;
  QuantizedTensor codes;
  Buffer mean;
  const GemmOperand weight = linear_weight(call, Operand::fprop_w, w.view(), DType::bf16, fprop_form);
  LinearForward forward{x.view(), weight, stage.result("y", kTokens, kOut, kNarrowSum).out(), workspace,
                        &codes};
  forward.mean = &mean;
  forward.weight_values = w.view();
  const LinearSaved saved = linear_forward(call, forward);

  LinearBackward backward{dy.view(), saved, workspace};
  if (precision.weight_form_shared()) {
    backward.weight = weight_operand(Operand::fprop_w, w.view(), fprop_form).transposed();
  } else {
    const MatrixView values = precision.dgrad_requantizes()
                                  ? linear_weight_values(call, fprop_form, DType::bf16, workspace)
                                  : w.view();
    backward.weight = linear_weight(call, Operand::dgrad_w, values, DType::bf16, dgrad_form);
  }
  backward.dx = stage.result("dx", kTokens, kIn, kNarrowSum).out();
  backward.dw = stage.changed("dw", stage.draw_f32(kOut, kIn, 1e-3, 0), kNarrowSum).out();
  linear_backward(call, backward);
  stage.backend().synchronize();  // the memory of this function goes
}

}  // namespace

std::vector<Check> product_checks() {
  std::vector<Check> checks;
  for (const Kind& a : kinds())
    for (const Kind& b : kinds()) {
      const std::string name = fmt::format("{} by {}", a.name, b.name);
      // The pairs that linear layers multiply are among those of equal formats.
      const bool brief = a.spec && b.spec && a.spec->format == b.spec->format;
      checks.push_back({"gemm",
                        name,
                        {},
                        [=](Stage& stage) {
                          multiply(stage, a, b, {64, 96, 256});
                        },
                        brief});
      checks.push_back({"gemm", name + ", ragged", {DType::bf16, true}, [=](Stage& stage) {
                          multiply(stage, a, b, {48, 80, 160});
                        }});
    }
  for (const NamedPrecision& named : precisions())
    checks.push_back({"linear layer",
                      named.name,
                      {},
                      [precision = named.precision](Stage& stage) { linear(stage, precision); },
                      true});
  return checks;
}

}  // namespace tetrad::selftest
