// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tetrad/selftest/checks.h"

namespace tetrad::selftest {
namespace {

/// Of the largest value, twice what tests/backend allow one backend.
double attention_tolerance(const Stage& stage) { return stage.dtype() == DType::bf16 ? 0x1p-7 : 2e-5; }
constexpr double kF32Tolerance = 2e-5;

struct AttentionInputs {
  const Matrix &q, &k, &v;
  const Matrix* documents;

  AttentionInputs(Stage& stage, const AttentionShape& s, bool with_documents)
      : q(stage.draw(s.batch * s.sequence, s.heads * s.head_dim)),
        k(stage.draw(s.batch * s.sequence, s.kv_heads * s.head_dim)),
        v(stage.draw(s.batch * s.sequence, s.kv_heads * s.head_dim)),
        documents(with_documents ? &stage.documents(s.batch, s.sequence) : nullptr) {}

  const std::int32_t* starts() const { return documents == nullptr ? nullptr : documents->i32(); }
};

void forward(Stage& stage, const AttentionShape& s, bool documents) {
  const AttentionInputs in(stage, s, documents);
  stage.backend().attention(AttentionForward{
      s, in.q.view(), in.k.view(), in.v.view(),
      stage.result("out", s.batch * s.sequence, s.heads * s.head_dim, attention_tolerance(stage)).out(),
      stage.result_f32("log_sum_exp", s.batch * s.heads * s.sequence, kF32Tolerance).f32(), in.starts()});
}

void backward(Stage& stage, const AttentionShape& s, bool documents) {
  const std::int64_t rows = s.batch * s.sequence;
  const AttentionInputs in(stage, s, documents);
  const Matrix& out = stage.blank(rows, s.heads * s.head_dim);
  const Matrix& log_sum_exp = stage.blank_f32(rows * s.heads);
  stage.reference().attention(AttentionForward{s, in.q.host_view(), in.k.host_view(), in.v.host_view(),
                                               out.host(), log_sum_exp.host_f32(),
                                               documents ? in.documents->host_i32() : nullptr});
  out.upload();
  log_sum_exp.upload();
  AttentionBackward op;
  op.shape = s;
  op.q = in.q.view();
  op.k = in.k.view();
  op.v = in.v.view();
  op.out = out.view();
  op.log_sum_exp = log_sum_exp.f32();
  op.dout = stage.draw(rows, s.heads * s.head_dim).view();
  op.dq = stage.result("dq", rows, s.heads * s.head_dim, attention_tolerance(stage)).out();
  op.dk = stage.result("dk", rows, s.kv_heads * s.head_dim, attention_tolerance(stage)).out();
  op.dv = stage.result("dv", rows, s.kv_heads * s.head_dim, attention_tolerance(stage)).out();
  op.document_starts = in.starts();
  stage.backend().attention(op);
}

void decode(Stage& stage, std::int64_t added, std::int64_t cached, std::int64_t head_dim) {
  const AttentionShape shape{1, added, 4, 2, head_dim, 0.1f};
  stage.backend().attention(AttentionDecode{
      shape, cached, stage.draw(added, 4 * head_dim).view(), stage.draw(cached + added, 2 * head_dim).view(),
      stage.draw(cached + added, 2 * head_dim).view(),
      stage.result("out", added, 4 * head_dim, attention_tolerance(stage)).out()});
}

std::string name_of(const AttentionShape& s) {
  return fmt::format("{} x {}, {}/{} heads of {}", s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim);
}

}  // namespace

std::vector<Check> attention_checks() {
  // Shorter than a tile, a part of one, whole ones (which libraries take too), and heads of no kernel's size.
  constexpr AttentionShape kShapes[] = {{2, 5, 4, 2, 64, 0.125f},
                                        {1, 67, 2, 1, 128, 0.09f},
                                        {1, 200, 2, 1, 64, 0.2f},
                                        {1, 256, 2, 1, 128, 0.09f},
                                        {2, 33, 3, 3, 18, 0.25f}};
  struct Engine {
    AttentionEngine engine;
    const char* name;
  };
  constexpr Engine kEngines[] = {{AttentionEngine::best, ""},
                                 {AttentionEngine::own, ", own kernels"},
                                 {AttentionEngine::library, ", library"}};
  std::vector<Check> checks;
  for (const AttentionShape& shape : kShapes)
    for (const bool documents : {false, true})
      for (const auto& [engine, engine_name] : kEngines) {
        const auto with_engine = [=](void (*run)(Stage&, const AttentionShape&, bool)) {
          return [=](Stage& stage) {
            stage.backend().use_attention_engine(engine,
                                                 shape);  // where it has several; otherwise nothing changes
            run(stage, shape, documents);
            stage.backend().use_attention_engine(AttentionEngine::best, shape);
          };
        };
        const std::string name = name_of(shape) + (documents ? ", documents" : "") + engine_name;
        if (engine != AttentionEngine::best) {
          if (documents || shape.sequence != 256) continue;  // the one shape that several serve
          checks.push_back({"attention forward", name, {}, with_engine(forward), true});
          checks.push_back({"attention backward", name, {}, with_engine(backward), true});
          continue;
        }
        add_for_all_storages(checks, "attention forward", name, with_engine(forward));
        add_for_all_storages(checks, "attention backward", name, with_engine(backward));
      }
  for (const std::int64_t head_dim : {18, 64, 128})
    for (const std::int64_t added : {1, 3})
      add_for_all_storages(checks, "attention decode",
                           fmt::format("{} after 130, heads of {}", added, head_dim),
                           [=](Stage& stage) { decode(stage, added, 130, head_dim); });
  return checks;
}

}  // namespace tetrad::selftest
