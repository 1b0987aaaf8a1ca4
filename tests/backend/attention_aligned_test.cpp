// SPDX-License-Identifier: Apache-2.0
// BF16 attention on views whose rows are aligned to 16 bytes, with the head dimensions of real models: where
// backends have their fast forms, which the odd views of attention_test.cpp never reach.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "oracle/attention.h"
#include "support/activations.h"
#include "support/aligned_matrix.h"
#include "support/backends.h"
#include "support/documents.h"

namespace tetrad::testing::attention_aligned_test {
namespace {

constexpr double kBf16Error = 0x1p-8;
constexpr double kF32Error = 1e-5;

using Matrix = AlignedMatrix<Bf16>;

/// Shorter than a tile, of one tile exactly, of several with and without a part of one; groups of 1, 2 and 4
/// heads.
const std::vector<AttentionShape>& shapes() {
  static const std::vector<AttentionShape> all = {
      {2, 5, 4, 2, 64, 0.125f},   {1, 67, 2, 1, 128, 0.09f},  {2, 128, 2, 2, 64, 0.125f},
      {2, 200, 4, 1, 64, 0.2f},   {1, 257, 2, 1, 128, 0.1f},  {1, 300, 3, 3, 64, 0.125f},
      {2, 321, 2, 1, 128, 0.09f}, {2, 256, 4, 1, 64, 0.125f}, {1, 384, 4, 2, 128, 0.09f}};
  return all;
}

constexpr AttentionEngine kEngines[] = {AttentionEngine::best, AttentionEngine::own,
                                        AttentionEngine::library};

class AlignedAttention : public ::testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { device().use_attention_engine(AttentionEngine::best, {}); }
  static Backend& device() { return backend(GetParam()); }
};

struct Inputs {
  std::int64_t rows, q_cols, kv_cols;
  Values q, k, v, dout;
  DocumentStarts document_starts;

  explicit Inputs(const AttentionShape& shape, bool documents = false)
      : rows(shape.batch * shape.sequence),
        q_cols(shape.heads * shape.head_dim),
        kv_cols(shape.kv_heads * shape.head_dim),
        q(normal_values(rows * q_cols, 1)),
        k(normal_values(rows * kv_cols, 2)),
        v(normal_values(rows * kv_cols, 3)),
        dout(normal_values(rows * q_cols, 4)) {
    if (documents) document_starts = some_documents(shape.batch, shape.sequence);
  }
};

/// The gradients in f32, from the views of any alignment that attention_test.cpp holds against the
/// definition.
struct Gradients {
  Activations dq, dk, dv;

  Gradients(Backend& device, const AttentionShape& shape, const Inputs& in)
      : dq(DType::f32, in.rows, in.q_cols),
        dk(DType::f32, in.rows, in.kv_cols),
        dv(DType::f32, in.rows, in.kv_cols) {
    const Activations q(DType::f32, in.rows, in.q_cols, in.q);
    const Activations k(DType::f32, in.rows, in.kv_cols, in.k);
    const Activations v(DType::f32, in.rows, in.kv_cols, in.v);
    const Activations dout(DType::f32, in.rows, in.q_cols, in.dout);
    Activations out(DType::f32, in.rows, in.q_cols);
    std::vector<float> log_sum_exp(static_cast<std::size_t>(in.rows * shape.heads));
    device.attention(AttentionForward{shape, q.view(), k.view(), v.view(), out.mutable_view(),
                                      log_sum_exp.data(), pointer_to(in.document_starts)});
    device.attention(AttentionBackward{shape, q.view(), k.view(), v.view(), out.view(), log_sum_exp.data(),
                                       dout.view(), dq.mutable_view(), dk.mutable_view(), dv.mutable_view(),
                                       pointer_to(in.document_starts)});
  }
};

/// A forward and a backward pass, and everything they wrote.
struct Passes {
  Matrix out, dq, dk, dv;
  std::vector<float> log_sum_exp;

  Passes(Backend& device, const AttentionShape& shape, const Inputs& in)
      : out(in.rows, in.q_cols),
        dq(in.rows, in.q_cols),
        dk(in.rows, in.kv_cols),
        dv(in.rows, in.kv_cols),
        log_sum_exp(static_cast<std::size_t>(in.rows * shape.heads)) {
    const Matrix q(in.rows, in.q_cols, in.q);
    const Matrix k(in.rows, in.kv_cols, in.k);
    const Matrix v(in.rows, in.kv_cols, in.v);
    const Matrix dout(in.rows, in.q_cols, in.dout);
    device.attention(AttentionForward{shape, q.view(), k.view(), v.view(), out.mutable_view(),
                                      log_sum_exp.data(), pointer_to(in.document_starts)});
    device.attention(AttentionBackward{shape, q.view(), k.view(), v.view(), out.view(), log_sum_exp.data(),
                                       dout.view(), dq.mutable_view(), dk.mutable_view(), dv.mutable_view(),
                                       pointer_to(in.document_starts)});
  }
};

void check_attention(Backend& device, bool documents) {
  for (const AttentionShape& shape : shapes()) {
    const Inputs in(shape, documents);
    Values expected_log_sum_exp;
    const Values expected = oracle::attention(
        {shape.batch, shape.sequence, shape.heads, shape.kv_heads, shape.head_dim, double{shape.scale}}, in.q,
        in.k, in.v, &expected_log_sum_exp, in.document_starts);
    const Gradients gradients(device, shape, in);
    for (const AttentionEngine engine : kEngines) {
      if (!device.use_attention_engine(engine, shape)) continue;
      SCOPED_TRACE(fmt::format("batch {}, sequence {}, head_dim {}, engine {}", shape.batch, shape.sequence,
                               shape.head_dim, static_cast<int>(engine)));
      const Passes passes(device, shape, in);
      EXPECT_LT(relative_error(passes.out.values(), expected), kBf16Error);
      EXPECT_LT(relative_error(passes.log_sum_exp, expected_log_sum_exp), kF32Error);
      EXPECT_LT(relative_error(passes.dq.values(), gradients.dq.values()), 2 * kBf16Error);
      EXPECT_LT(relative_error(passes.dk.values(), gradients.dk.values()), 2 * kBf16Error);
      EXPECT_LT(relative_error(passes.dv.values(), gradients.dv.values()), 2 * kBf16Error);
      for (const Matrix* written : {&passes.out, &passes.dq, &passes.dk, &passes.dv})
        EXPECT_TRUE(written->surroundings_are_untouched());
    }
  }
}

TEST_P(AlignedAttention, IsTheDefinitionAndItsDerivative) { check_attention(device(), false); }

TEST_P(AlignedAttention, OfDocumentsIsTheDefinitionAndItsDerivative) { check_attention(device(), true); }

TEST_P(AlignedAttention, RepeatsItsBits) {
  // Enough blocks of keys for each query that sums in the order of arrival would differ.
  const AttentionShape shape{2, 1024, 8, 2, 64, 0.125f};
  const Inputs in(shape);
  for (const AttentionEngine engine : kEngines) {
    if (!device().use_attention_engine(engine, shape)) continue;
    const Passes first(device(), shape, in);
    for (int i = 0; i < 2; ++i) {
      const Passes again(device(), shape, in);
      EXPECT_EQ(again.log_sum_exp, first.log_sum_exp);
      EXPECT_EQ(again.out.values(), first.out.values());
      EXPECT_EQ(again.dq.values(), first.dq.values());
      EXPECT_EQ(again.dk.values(), first.dk.values());
      EXPECT_EQ(again.dv.values(), first.dv.values());
    }
  }
}

TEST_P(AlignedAttention, DecodeIsTheForwardPassContinued) {
  const AttentionShape shape{1, 400, 4, 2, 64, 0.125f};
  const Inputs in(shape);
  const Matrix q(in.rows, in.q_cols, in.q);
  const Matrix k(in.rows, in.kv_cols, in.k);
  const Matrix v(in.rows, in.kv_cols, in.v);
  const Values expected =
      oracle::attention({1, shape.sequence, shape.heads, shape.kv_heads, shape.head_dim, double{shape.scale}},
                        in.q, in.k, in.v);
  std::int64_t cached = 0;
  for (const std::int64_t count : {70, 1, 130, 3, 66, 1, 129}) {
    AttentionShape part = shape;
    part.sequence = count;
    Matrix out(count, in.q_cols);
    device().attention(AttentionDecode{part, cached, q.view(cached, count), k.view(0, cached + count),
                                       v.view(0, cached + count), out.mutable_view()});
    const auto first = expected.begin() + cached * in.q_cols;
    EXPECT_LT(relative_error(out.values(), Values(first, first + count * in.q_cols)), kBf16Error)
        << count << " tokens after " << cached;
    EXPECT_TRUE(out.surroundings_are_untouched());
    cached += count;
  }
  EXPECT_EQ(cached, shape.sequence);
}

INSTANTIATE_TEST_SUITE_P(All, AlignedAttention, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::attention_aligned_test
