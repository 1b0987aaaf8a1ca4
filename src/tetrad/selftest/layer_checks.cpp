// SPDX-License-Identifier: Apache-2.0
// Everything of a model that is neither a product nor a mixer of tokens. Tolerances are twice those that
// tests/backend hold each backend to: two backends may err in opposite directions.
#include <fmt/format.h>

#include <algorithm>

#include "tetrad/selftest/checks.h"

namespace tetrad::selftest {
namespace {

constexpr double kForward = 2e-6;
constexpr double kBackward = 4e-5;

struct Rows {
  std::int64_t rows, width;
  std::int64_t parts = 1;  //!< heads or groups of a row
};

std::string name_of(const Rows& shape) {
  return fmt::format("{} x {}{}", shape.rows, shape.width,
                     shape.parts == 1 ? "" : fmt::format(" in {}", shape.parts));
}

// ---- Embedding

constexpr std::int32_t kVocab = 61;  //!< fewer than tokens, so that gradients meet

void embedding_forward(Stage& stage, const Rows& shape) {
  const Matrix& tokens = stage.draw_integers(shape.rows, kVocab);
  const Matrix& table = stage.draw_f32(kVocab * shape.width);
  stage.backend().embedding(EmbeddingForward{tokens.i32(), table.f32(), kVocab,
                                             stage.result("out", shape.rows, shape.width, kSameBytes).out()});
}

void embedding_backward(Stage& stage, const Rows& shape) {
  const Matrix& tokens = stage.draw_integers(shape.rows, kVocab);
  const Matrix& dout = stage.draw(shape.rows, shape.width);
  Matrix& dtable = stage.changed("dtable", stage.draw_f32(kVocab * shape.width), kForward);
  stage.backend().embedding(EmbeddingBackward{tokens.i32(), dout.view(), kVocab, dtable.f32()});
}

// ---- Norms

void rms_norm_forward(Stage& stage, const Rows& shape) {
  const auto& [rows, width, heads] = shape;
  RmsNormForward op;
  op.x = stage.draw(rows, width, 3).view();
  op.weight = stage.draw_f32(width / heads).f32();
  op.y = stage.result("y", rows, width, kForward).out();
  op.inverse_rms = stage.result_f32("inverse_rms", rows * heads, kForward).f32();
  op.heads = heads;
  stage.backend().rms_norm(op);
}

void rms_norm_backward(Stage& stage, const Rows& shape, Accumulate accumulate) {
  const auto& [rows, width, heads] = shape;
  const Matrix& x = stage.draw(rows, width, 2);
  const Matrix& weight = stage.draw_f32(width / heads);
  const Matrix& inverse = stage.blank_f32(rows * heads);
  const Matrix& y = stage.blank(rows, width);
  stage.reference().rms_norm(
      RmsNormForward{x.host_view(), weight.host_f32(), 1e-5f, y.host(), inverse.host_f32(), heads});
  inverse.upload();
  RmsNormBackward op;
  op.x = x.view();
  op.weight = weight.f32();
  op.inverse_rms = inverse.f32();
  op.dy = stage.draw(rows, width).view();
  op.dx =
      stage
          .changed("dx", accumulate == Accumulate::yes ? stage.draw(rows, width) : stage.blank(rows, width),
                   kBackward)
          .out();
  op.dweight = stage.changed("dweight", stage.draw_f32(width / heads), kBackward).f32();
  op.heads = heads;
  op.accumulate = accumulate;
  stage.backend().rms_norm(op);
}

void gated_norm_forward(Stage& stage, const Rows& shape) {
  const auto& [rows, width, groups] = shape;
  GatedNormForward op;
  op.y = stage.draw(rows, width, 2).view();
  op.z = stage.draw(rows, width, 4).view();
  op.weight = stage.draw_f32(width).f32();
  op.groups = groups;
  op.out = stage.result("out", rows, width, 2 * kForward).out();
  op.inverse_rms = stage.result_f32("inverse_rms", rows * groups, 2 * kForward).f32();
  stage.backend().gated_norm(op);
}

void gated_norm_backward(Stage& stage, const Rows& shape) {
  const auto& [rows, width, groups] = shape;
  const Matrix& y = stage.draw(rows, width, 2);
  const Matrix& z = stage.draw(rows, width, 2);
  const Matrix& weight = stage.draw_f32(width);
  const Matrix& inverse = stage.blank_f32(rows * groups);
  const Matrix& out = stage.blank(rows, width);
  stage.reference().gated_norm(GatedNormForward{y.host_view(), z.host_view(), weight.host_f32(), groups,
                                                1e-5f, out.host(), inverse.host_f32()});
  inverse.upload();
  GatedNormBackward op;
  op.y = y.view();
  op.z = z.view();
  op.weight = weight.f32();
  op.groups = groups;
  op.inverse_rms = inverse.f32();
  op.dout = stage.draw(rows, width).view();
  op.dy = stage.result("dy", rows, width, kBackward).out();
  op.dz = stage.result("dz", rows, width, kBackward).out();
  op.dweight = stage.changed("dweight", stage.draw_f32(width), kBackward).f32();
  stage.backend().gated_norm(op);
}

// ---- Positions

void rope(Stage& stage, bool inverse, bool documents) {
  constexpr std::int64_t kBatch = 2, kSequence = 200, kHeads = 3, kHeadDim = 64;
  const std::vector<float> frequencies = rope_frequencies(kHeadDim, 10000, nullptr);
  const Matrix& uploaded = stage.blank_f32(kHeadDim / 2);
  std::ranges::copy(frequencies, uploaded.host_f32());
  uploaded.upload();
  // The angle has the rounding of its position.
  constexpr double kTolerance = 2 * (3e-7 + 0x1p-24 * (kSequence + 100));
  Rope op;
  op.x = stage.changed("x", stage.draw(kBatch * kSequence, kHeads * kHeadDim), kTolerance).out();
  op.sequence = kSequence;
  op.head_dim = kHeadDim;
  op.first_position = documents ? 0 : 100;
  op.frequencies = uploaded.f32();
  op.inverse = inverse;
  if (documents) op.document_starts = stage.documents(kBatch, kSequence).i32();
  stage.backend().rope(op);
}

// ---- Activations

std::int64_t input_width(Activation kind, std::int64_t width) {
  return kind == Activation::swiglu ? 2 * width : width;
}

/// Where the backend reported the amax of what it wrote, a quantizer that believes it gives the bytes of one
/// that looks for itself.
void note_report(Stage& stage, const MatrixView& written, const AmaxReport& report) {
  bool same = true;
  for (const QuantSpec& spec : {QuantSpec{}, QuantSpec{.axis = 0, .hadamard = 16}}) {
    const CodeOrder order = stage.backend().preferred_order(spec);
    QuantizedTensor believing, looking;
    stage.backend().quantize(written, spec, {.order = order, .telemetry = Telemetry::none, .input = &report},
                             believing);
    stage.backend().quantize(written, spec, {.order = order, .telemetry = Telemetry::none}, looking);
    std::vector<std::byte> codes(looking.codes.size());
    std::vector<std::byte> other(believing.codes.size());
    stage.backend().download(looking.codes.span<std::byte>(), codes);
    stage.backend().download(believing.codes.span<std::byte>(), other);
    same = same && codes == other;
  }
  stage.note("amax", {same ? 1.0 : 0.0}, kSameBytes);
}

void activation_forward(Stage& stage, Activation kind, const Rows& shape) {
  ActivationForward op;
  op.kind = kind;
  op.x = stage.draw(shape.rows, input_width(kind, shape.width), 3).view();
  op.y = stage.result("y", shape.rows, shape.width, kForward).out();
  const Matrix& values = stage.draw_f32(2);
  AmaxReport report{.values = values.f32()};
  op.amax = &report;
  stage.backend().activation(op);
  note_report(stage, as_const(op.y), report);
}

void activation_backward(Stage& stage, Activation kind, const Rows& shape) {
  const std::int64_t in = input_width(kind, shape.width);
  ActivationBackward op;
  op.kind = kind;
  op.x = stage.draw(shape.rows, in, 2).view();
  op.dy = stage.draw(shape.rows, shape.width).view();
  op.dx = stage.result("dx", shape.rows, in, 2 * kForward).out();
  const Matrix& values = stage.draw_f32(2);
  AmaxReport report{.values = values.f32()};
  op.amax = &report;
  stage.backend().activation(op);
  note_report(stage, as_const(op.dx), report);
}

// ---- Sums, copies and means

void add_matrices(Stage& stage, const Rows& shape) {
  const Matrix& a = stage.draw(shape.rows, shape.width);
  const Matrix& b = stage.draw(shape.rows, shape.width);
  stage.backend().add({a.view(), b.view(), stage.result("sum", shape.rows, shape.width, kSameBytes).out()});
}

void cast_either_way(Stage& stage, const Rows& shape) {
  const auto& [rows, width, unused] = shape;
  const Matrix& from = stage.draw(rows, width);
  stage.backend().cast({from.view(), stage.result_f32("wide", rows, width, kSameBytes).out()});
  const Matrix& wide = stage.draw_f32(rows, width, 1, 0);
  stage.backend().cast({wide.view(), stage.result("out", rows, width, kSameBytes).out()});
}

void column_sums(Stage& stage, const Rows& shape) {
  stage.backend().column_sums({stage.draw(shape.rows, shape.width, 1, 0.5).view(),
                               stage.result_f32("sums", shape.width, kSameBytes).out()});
}

void centre(Stage& stage, const Rows& shape) {
  const Matrix& x = stage.draw(shape.rows, shape.width, 1, 0.5);
  const Matrix& sums = stage.blank_f32(shape.width);
  stage.reference().column_sums({x.host_view(), sums.host()});
  sums.upload();
  stage.backend().centre({x.view(), sums.view(), stage.result_f32("mean", shape.width, kSameBytes).out(),
                          stage.result("out", shape.rows, shape.width, kSameBytes).out()});
}

void add_row(Stage& stage, const Rows& shape) {
  const Matrix& row = stage.draw_f32(shape.width);
  stage.backend().add_row(
      {row.view(), stage.changed("out", stage.draw(shape.rows, shape.width), kSameBytes).out()});
}

void add_outer(Stage& stage, const Rows& shape) {
  const Matrix& column = stage.draw_f32(shape.rows);
  const Matrix& row = stage.draw_f32(shape.width);
  Matrix& out = stage.changed("out", stage.draw_f32(shape.rows, shape.width, 1, 0), kSameBytes);
  stage.backend().add_outer({column.view(), row.view(), out.out()});
}

// ---- Loss

void cross_entropy(Stage& stage, std::int64_t tokens, std::int32_t vocab, std::int64_t width, bool backward) {
  const double tolerance = stage.dtype() == DType::bf16 ? 0x1p-7 : 2e-5;
  const Matrix& hidden = stage.draw(tokens, width);
  const Matrix& head = stage.draw(vocab, width, 0.3);
  Matrix& targets = stage.draw_integers(tokens, vocab);
  targets.host_i32()[tokens / 2] = CrossEntropy::kIgnore;
  targets.upload();
  CrossEntropy op;
  op.hidden = hidden.view();
  op.head = head.view();
  op.targets = targets.i32();
  op.losses = stage.result_f32("losses", tokens, 4e-6).f32();
  if (backward) {
    op.gradient_scale = 0.37f;
    op.z_loss = 0.02f;
    op.dhidden = stage.result("dhidden", tokens, width, tolerance).out();
    op.dhead = stage.changed("dhead", stage.draw_f32(vocab * width, 0.01), tolerance).f32();
  }
  stage.backend().cross_entropy(op);
}

}  // namespace

std::vector<Check> layer_checks() {
  std::vector<Check> checks;
  const auto add = [&](const char* operation, const std::string& name,
                       const std::function<void(Stage&)>& run) {
    add_for_all_storages(checks, operation, name, run);
  };
  // Rows that fill no vector, and rows as models have them.
  constexpr Rows kShapes[] = {{5, 33}, {128, 512}};
  const auto add_rows = [&](const char* operation, void (*run)(Stage&, const Rows&)) {
    for (const Rows& shape : kShapes)
      add(operation, name_of(shape), [run, shape](Stage& stage) { run(stage, shape); });
  };
  add_rows("embedding forward", embedding_forward);
  add_rows("embedding backward", embedding_backward);
  for (const Rows& shape : {Rows{5, 33}, Rows{70, 512}, Rows{5, 99, 3}, Rows{70, 512, 8}}) {
    add("rms_norm forward", name_of(shape), [=](Stage& stage) { rms_norm_forward(stage, shape); });
    for (const Accumulate accumulate : {Accumulate::yes, Accumulate::no})
      add("rms_norm backward", name_of(shape) + (accumulate == Accumulate::yes ? ", added" : ""),
          [=](Stage& stage) { rms_norm_backward(stage, shape, accumulate); });
  }
  for (const Rows& shape : {Rows{5, 21, 3}, Rows{70, 512, 2}}) {
    add("gated_norm forward", name_of(shape), [=](Stage& stage) { gated_norm_forward(stage, shape); });
    add("gated_norm backward", name_of(shape), [=](Stage& stage) { gated_norm_backward(stage, shape); });
  }
  for (const bool inverse : {false, true})
    for (const bool documents : {false, true})
      add("rope", fmt::format("{}{}", inverse ? "back" : "forth", documents ? ", documents" : ""),
          [=](Stage& stage) { rope(stage, inverse, documents); });
  for (const Activation kind : {Activation::swiglu, Activation::squared_relu})
    for (const Rows& shape : {Rows{32, 48}, Rows{128, 256}}) {
      const std::string name =
          fmt::format("{} {}", kind == Activation::swiglu ? "swiglu" : "squared_relu", name_of(shape));
      add("activation forward", name, [=](Stage& stage) { activation_forward(stage, kind, shape); });
      add("activation backward", name, [=](Stage& stage) { activation_backward(stage, kind, shape); });
    }
  add_rows("add", add_matrices);
  add_rows("cast", cast_either_way);
  for (const Rows& shape : {Rows{70, 33}, Rows{256, 512}}) {
    add("column_sums", name_of(shape), [=](Stage& stage) { column_sums(stage, shape); });
    add("centre", name_of(shape), [=](Stage& stage) { centre(stage, shape); });
  }
  add_rows("add_row", add_row);
  add_rows("add_outer", add_outer);
  for (const bool backward : {false, true}) {
    const char* name = backward ? "loss and gradients" : "loss";
    add("cross_entropy", fmt::format("{}, 33 x 130", name),
        [=](Stage& stage) { cross_entropy(stage, 33, 130, 16, backward); });
    add("cross_entropy", fmt::format("{}, 64 x 1000", name),
        [=](Stage& stage) { cross_entropy(stage, 64, 1000, 128, backward); });
  }
  return checks;
}

}  // namespace tetrad::selftest
