// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tetrad/selftest/checks.h"

namespace tetrad::selftest {
namespace {

// Of the largest value, twice what tests/backend allow one backend (mamba2_aligned_test.cpp says why so
// much).
constexpr double kF32 = 2e-5;
double outputs(const Stage& stage) { return stage.dtype() == DType::bf16 ? 0x1p-6 : kF32; }
double states(const Stage& stage) { return stage.dtype() == DType::bf16 ? 0x1p-14 : kF32; }

// ---- Convolution

struct Conv {
  std::int64_t batch, sequence, channels, kernel;
};

void conv_forward(Stage& stage, const Conv& c, bool documents) {
  CausalConvForward op;
  op.batch = c.batch;
  op.sequence = c.sequence;
  op.kernel = c.kernel;
  op.x = stage.draw(c.batch * c.sequence, c.channels).view();
  op.weight = stage.draw_f32(c.channels * c.kernel, 0.5).f32();
  op.bias = stage.draw_f32(c.channels, 0.5).f32();
  op.out = stage.result("out", c.batch * c.sequence, c.channels, kF32).out();
  if (documents) op.document_starts = stage.documents(c.batch, c.sequence).i32();
  stage.backend().causal_conv(op);
}

void conv_backward(Stage& stage, const Conv& c, bool documents) {
  CausalConvBackward op;
  op.batch = c.batch;
  op.sequence = c.sequence;
  op.kernel = c.kernel;
  op.x = stage.draw(c.batch * c.sequence, c.channels).view();
  op.weight = stage.draw_f32(c.channels * c.kernel, 0.5).f32();
  op.bias = stage.draw_f32(c.channels, 0.5).f32();
  op.dout = stage.draw(c.batch * c.sequence, c.channels).view();
  op.dx = stage.result("dx", c.batch * c.sequence, c.channels, kF32).out();
  op.dweight = stage.changed("dweight", stage.draw_f32(c.channels * c.kernel), kF32).f32();
  op.dbias = stage.changed("dbias", stage.draw_f32(c.channels), kF32).f32();
  if (documents) op.document_starts = stage.documents(c.batch, c.sequence).i32();
  stage.backend().causal_conv(op);
}

// ---- Scan

struct ScanDraws {
  const Matrix &x, &b, &c, &dt, &dt_bias, &a_log, &d;
  const Matrix* documents;

  ScanDraws(Stage& stage, const Mamba2Shape& s, bool with_documents)
      : x(stage.draw(s.batch * s.sequence, s.inner())),
        b(stage.draw(s.batch * s.sequence, s.groups * s.state)),
        c(stage.draw(s.batch * s.sequence, s.groups * s.state)),
        dt(stage.draw(s.batch * s.sequence, s.heads)),
        dt_bias(stage.draw_f32(s.heads, 0.5, -2)),
        a_log(stage.draw_f32(s.heads, 0.5, 1)),
        d(stage.draw_f32(s.heads, 0.5, 1)),
        documents(with_documents ? &stage.documents(s.batch, s.sequence) : nullptr) {}

  ScanInputs here() const {
    return {x.view(),      b.view(),    c.view(), dt.view(),
            dt_bias.f32(), a_log.f32(), d.f32(),  documents == nullptr ? nullptr : documents->i32()};
  }
  ScanInputs host() const {
    return {x.host_view(),      b.host_view(),
            c.host_view(),      dt.host_view(),
            dt_bias.host_f32(), a_log.host_f32(),
            d.host_f32(),       documents == nullptr ? nullptr : documents->host_i32()};
  }
};

std::int64_t state_count(const Mamba2Shape& s) { return s.batch * s.chunks() * s.inner() * s.state; }

void scan_forward(Stage& stage, const Mamba2Shape& s, bool documents) {
  const ScanDraws in(stage, s, documents);
  stage.backend().scan(ScanForward{s, in.here(),
                                   stage.result("y", s.batch * s.sequence, s.inner(), outputs(stage)).out(),
                                   stage.result_f32("chunk_states", state_count(s), states(stage)).f32()});
}

void scan_backward(Stage& stage, const Mamba2Shape& s, bool documents) {
  const std::int64_t rows = s.batch * s.sequence;
  const ScanDraws in(stage, s, documents);
  const Matrix& y = stage.blank(rows, s.inner());
  const Matrix& before_chunks = stage.blank_f32(state_count(s));
  stage.reference().scan(ScanForward{s, in.host(), y.host(), before_chunks.host_f32()});
  before_chunks.upload();
  ScanBackward op;
  op.shape = s;
  op.in = in.here();
  op.chunk_states = before_chunks.f32();
  op.dy = stage.draw(rows, s.inner()).view();
  op.dx = stage.result("dx", rows, s.inner(), outputs(stage)).out();
  op.db = stage.result("db", rows, s.groups * s.state, outputs(stage)).out();
  op.dc = stage.result("dc", rows, s.groups * s.state, outputs(stage)).out();
  op.ddt = stage.result("ddt", rows, s.heads, outputs(stage)).out();
  // Sums over tokens, among which terms of both signs cancel.
  op.ddt_bias = stage.changed("ddt_bias", stage.draw_f32(s.heads), outputs(stage)).f32();
  op.da_log = stage.changed("da_log", stage.draw_f32(s.heads), outputs(stage)).f32();
  op.dd = stage.changed("dd", stage.draw_f32(s.heads), kF32).f32();
  stage.backend().scan(op);
}

void step(Stage& stage, const Mamba2Shape& s) {
  constexpr std::int64_t kKernel = 4;
  Mamba2Step op;
  op.shape = s;
  op.kernel = kKernel;
  op.xbc = stage.draw(1, s.conv_channels()).view();
  op.dt = stage.draw(1, s.heads).view();
  op.conv_weight = stage.draw_f32(s.conv_channels() * kKernel, 0.5).f32();
  op.conv_bias = stage.draw_f32(s.conv_channels(), 0.5).f32();
  op.dt_bias = stage.draw_f32(s.heads, 0.5, -2).f32();
  op.a_log = stage.draw_f32(s.heads, 0.5, 1).f32();
  op.d = stage.draw_f32(s.heads, 0.5, 1).f32();
  op.conv_state = stage.changed("conv_state", stage.draw_f32((kKernel - 1) * s.conv_channels()), kF32).f32();
  op.ssm_state = stage.changed("ssm_state", stage.draw_f32(s.inner() * s.state), outputs(stage)).f32();
  op.y = stage.result("y", 1, s.inner(), outputs(stage)).out();
  stage.backend().mamba2_step(op);
}

}  // namespace

std::vector<Check> mamba2_checks() {
  std::vector<Check> checks;
  const auto with = [](bool documents) { return documents ? ", documents" : ""; };
  for (const bool documents : {false, true}) {
    for (const Conv& c : {Conv{2, 37, 21, 3}, Conv{2, 200, 256, 4}}) {
      const std::string name = fmt::format("{} x {} x {}, kernel {}{}", c.batch, c.sequence, c.channels,
                                           c.kernel, with(documents));
      add_for_all_storages(checks, "causal_conv forward", name,
                           [=](Stage& stage) { conv_forward(stage, c, documents); });
      add_for_all_storages(checks, "causal_conv backward", name,
                           [=](Stage& stage) { conv_backward(stage, c, documents); });
    }
    // Heads, states and chunks as models have them, with a part of a chunk in the end; and as none has them.
    for (const Mamba2Shape& s : {Mamba2Shape{1, 200, 2, 64, 2, 128, 64}, Mamba2Shape{2, 70, 2, 64, 1, 64, 64},
                                 Mamba2Shape{1, 130, 2, 80, 1, 128, 64}, Mamba2Shape{2, 37, 3, 5, 1, 7, 8}}) {
      const std::string name = fmt::format("{} x {}, {} heads of {}, state {}{}", s.batch, s.sequence,
                                           s.heads, s.head_dim, s.state, with(documents));
      add_for_all_storages(checks, "scan forward", name,
                           [=](Stage& stage) { scan_forward(stage, s, documents); });
      add_for_all_storages(checks, "scan backward", name,
                           [=](Stage& stage) { scan_backward(stage, s, documents); });
    }
  }
  for (const Mamba2Shape& s : {Mamba2Shape{1, 1, 4, 64, 2, 128, 64}, Mamba2Shape{1, 1, 3, 5, 1, 7, 8}})
    add_for_all_storages(checks, "mamba2_step",
                         fmt::format("{} heads of {}, state {}", s.heads, s.head_dim, s.state),
                         [=](Stage& stage) { step(stage, s); });
  return checks;
}

}  // namespace tetrad::selftest
