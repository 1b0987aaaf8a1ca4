// SPDX-License-Identifier: Apache-2.0
// Attention of every backend against its definition in double precision.

#include <gtest/gtest.h>

#include "oracle/attention.h"
#include "support/activations.h"
#include "support/backends.h"
#include "support/documents.h"
#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"

namespace tetrad::testing::attention_test {
namespace {

constexpr double kF32Error = 1e-5;       //!< relative to the tensor's largest value
constexpr double kGradientError = 1e-4;  //!< f32 gradients against finite differences
constexpr double kBf16Error = 0x1p-8;    //!< the output's rounding, and some for the arithmetic

/// Sequences shorter than a tile, not a multiple of one, and longer than the CPU's segments; group ratios;
/// head dimensions that are no multiple of a vector.
const std::vector<AttentionShape>& shapes() {
  static const std::vector<AttentionShape> all = {
      {1, 1, 2, 1, 16, 0.25f}, {2, 5, 4, 2, 32, 0.2f},   {3, 67, 3, 3, 16, 0.25f}, {1, 130, 4, 1, 64, 0.1f},
      {2, 64, 6, 2, 18, 0.3f}, {1, 300, 2, 1, 32, 0.2f}, {1, 5, 1, 1, 256, 0.06f}, {1, 70, 2, 2, 128, 0.09f},
  };
  return all;
}

oracle::AttentionSizes sizes_of(const AttentionShape& shape) {
  return {shape.batch, shape.sequence, shape.heads, shape.kv_heads, shape.head_dim, double{shape.scale}};
}

struct Problem {
  AttentionShape shape;
  Values q, k, v, dout;
  DocumentStarts document_starts;  //!< none unless with_documents()

  explicit Problem(const AttentionShape& of_shape, double query_size = 1)
      : shape(of_shape),
        q(normal_values(queries(), 1, query_size)),
        k(normal_values(keys(), 2)),
        v(normal_values(keys(), 3)),
        dout(normal_values(queries(), 4)) {}

  Problem with_documents() const {
    Problem problem = *this;
    problem.document_starts = some_documents(shape.batch, shape.sequence);
    return problem;
  }

  std::int64_t rows() const { return shape.batch * shape.sequence; }
  std::int64_t q_cols() const { return shape.heads * shape.head_dim; }
  std::int64_t kv_cols() const { return shape.kv_heads * shape.head_dim; }
  std::int64_t queries() const { return rows() * q_cols(); }
  std::int64_t keys() const { return rows() * kv_cols(); }

  Values expected(const Values& of_q, const Values& of_k, const Values& of_v,
                  Values* log_sum_exp = nullptr) const {
    return oracle::attention(sizes_of(shape), of_q, of_k, of_v, log_sum_exp, document_starts);
  }
  std::string description() const {
    return fmt::format("sequence {}, head_dim {}{}", shape.sequence, shape.head_dim,
                       document_starts.empty() ? "" : ", documents");
  }
};

/// Every shape, without documents and with them.
std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const AttentionShape& shape : shapes()) {
    all.emplace_back(shape);
    all.push_back(all.back().with_documents());
  }
  return all;
}

/// A forward and a backward pass, and everything they wrote.
struct Passes {
  Activations q, k, v, out, dout, dq, dk, dv;
  std::vector<float> log_sum_exp;

  Passes(Backend& device, const Problem& problem, DType dtype)
      : q(dtype, problem.rows(), problem.q_cols(), problem.q),
        k(dtype, problem.rows(), problem.kv_cols(), problem.k),
        v(dtype, problem.rows(), problem.kv_cols(), problem.v),
        out(dtype, problem.rows(), problem.q_cols()),
        dout(dtype, problem.rows(), problem.q_cols(), problem.dout),
        dq(dtype, problem.rows(), problem.q_cols()),
        dk(dtype, problem.rows(), problem.kv_cols()),
        dv(dtype, problem.rows(), problem.kv_cols()),
        log_sum_exp(static_cast<std::size_t>(problem.rows() * problem.shape.heads)) {
    device.attention(AttentionForward{problem.shape, q.view(), k.view(), v.view(), out.mutable_view(),
                                      log_sum_exp.data(), pointer_to(problem.document_starts)});
    device.attention(AttentionBackward{problem.shape, q.view(), k.view(), v.view(), out.view(),
                                       log_sum_exp.data(), dout.view(), dq.mutable_view(), dk.mutable_view(),
                                       dv.mutable_view(), pointer_to(problem.document_starts)});
  }
};

class Attention : public ::testing::TestWithParam<std::string> {
 protected:
  static Backend& device() { return backend(GetParam(), 0); }
};

TEST_P(Attention, ForwardIsTheDefinition) {
  for (const Problem& problem : problems())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(problem.description() + ", " + std::string(name_of(dtype)));
      const Passes passes(device(), problem, dtype);
      Values log_sum_exp;
      const Values expected = problem.expected(problem.q, problem.k, problem.v, &log_sum_exp);
      EXPECT_LT(relative_error(passes.out.values(), expected), dtype == DType::f32 ? kF32Error : kBf16Error);
      EXPECT_LT(relative_error(passes.log_sum_exp, log_sum_exp), kF32Error);
      for (const Activations* written : {&passes.out, &passes.dq, &passes.dk, &passes.dv})
        EXPECT_TRUE(written->surroundings_are_untouched());
    }
}

TEST_P(Attention, BackwardIsTheDerivative) {
  for (const Problem& problem : problems()) {
    SCOPED_TRACE(problem.description());
    const Passes passes(device(), problem, DType::f32);
    const auto loss = [&](const Values& q, const Values& k, const Values& v) {
      return dot(problem.expected(q, k, v), problem.dout);
    };
    const std::size_t samples = problem.shape.sequence > 100 ? 12 : 40;
    EXPECT_LT(gradient_error(
                  passes.dq.values(), problem.q,
                  [&](const Values& q) { return loss(q, problem.k, problem.v); }, samples),
              kGradientError);
    EXPECT_LT(gradient_error(
                  passes.dk.values(), problem.k,
                  [&](const Values& k) { return loss(problem.q, k, problem.v); }, samples),
              kGradientError);
    EXPECT_LT(gradient_error(
                  passes.dv.values(), problem.v,
                  [&](const Values& v) { return loss(problem.q, problem.k, v); }, samples),
              kGradientError);
  }
}

TEST_P(Attention, Bf16GradientsAreTheF32OnesRounded) {
  for (const Problem& problem : problems()) {
    const Passes f32(device(), problem, DType::f32);
    const Passes bf16(device(), problem, DType::bf16);
    // Twice: `out`, which the backward pass reads, is rounded too.
    EXPECT_LT(relative_error(bf16.dq.values(), f32.dq.values()), 2 * kBf16Error);
    EXPECT_LT(relative_error(bf16.dk.values(), f32.dk.values()), 2 * kBf16Error);
    EXPECT_LT(relative_error(bf16.dv.values(), f32.dv.values()), 2 * kBf16Error);
  }
}

TEST_P(Attention, LargeScoresNeitherOverflowNorLoseTheSmallOnes) {
  const AttentionShape shape{1, 130, 2, 1, 32, 1};
  const Problem problem(shape, 40);  // scores of some hundreds, of both signs
  const Passes passes(device(), problem, DType::f32);
  const Values expected = oracle::attention(sizes_of(shape), problem.q, problem.k, problem.v);
  // A score of 1000 has an f32 rounding of 2^-15, which its exponential turns into a relative error.
  EXPECT_LT(relative_error(passes.out.values(), expected), 1e-3);
  for (const Activations* gradient : {&passes.dq, &passes.dk, &passes.dv})
    for (const double value : gradient->values()) ASSERT_TRUE(std::isfinite(value));
}

TEST_P(Attention, DecodeIsTheForwardPassContinued) {
  const AttentionShape shape{1, 150, 4, 2, 32, 0.2f};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Problem problem(shape);
    const Passes passes(device(), problem, dtype);
    const Values expected = passes.out.values();
    std::int64_t cached = 0;
    for (const std::int64_t count : {1, 1, 15, 40, 7, 64, 1, 1, 20}) {
      AttentionShape part = shape;
      part.sequence = count;
      Activations out(dtype, count, problem.q_cols());
      device().attention(AttentionDecode{part, cached, passes.q.rows(cached, count),
                                         passes.k.rows(0, cached + count), passes.v.rows(0, cached + count),
                                         out.mutable_view()});
      const auto first = expected.begin() + cached * problem.q_cols();
      EXPECT_LT(relative_error(out.values(), Values(first, first + count * problem.q_cols())),
                dtype == DType::f32 ? kF32Error : kBf16Error)
          << count << " tokens after " << cached;
      cached += count;
    }
    EXPECT_EQ(cached, shape.sequence);
  }
}

TEST_P(Attention, DoesNotDependOnTheNumberOfThreads) {
  for (const Problem& problem : problems()) {
    const Passes one(backend(GetParam(), 1), problem, DType::f32);
    const Passes two(backend(GetParam(), 2), problem, DType::f32);
    EXPECT_TRUE(one.out == two.out && one.dq == two.dq && one.dk == two.dk && one.dv == two.dv);
    EXPECT_EQ(one.log_sum_exp, two.log_sum_exp);
  }
}

/// Rows [first, last) of a matrix.
Values rows_of(const Values& matrix, std::int64_t rows, std::int64_t first, std::int64_t last) {
  const std::int64_t cols = std::ssize(matrix) / rows;
  return {matrix.begin() + first * cols, matrix.begin() + last * cols};
}

TEST_P(Attention, NothingOfADocumentReachesTheOthers) {
  Problem problem = Problem({1, 300, 2, 1, 32, 0.2f}).with_documents();
  const Passes before(device(), problem, DType::f32);
  // The document at 65 … 127 becomes another one, with scores that would overflow beside those of the others.
  constexpr std::int64_t kFirst = 65;
  constexpr std::int64_t kLast = 128;
  ASSERT_EQ(problem.document_starts[kLast - 1], kFirst);
  ASSERT_EQ(problem.document_starts[kLast], kLast);
  const auto change = [&](Values& values) {
    const std::int64_t cols = std::ssize(values) / problem.rows();
    for (std::int64_t i = kFirst * cols; i < kLast * cols; ++i) values[static_cast<std::size_t>(i)] *= 100;
  };
  for (Values* values : {&problem.q, &problem.k, &problem.v, &problem.dout}) change(*values);
  const Passes after(device(), problem, DType::f32);
  const auto expect_same = [&](const Activations& one, const Activations& two) {
    const Values a = one.values();
    const Values b = two.values();
    for (const auto& [first, last] :
         {std::pair<std::int64_t, std::int64_t>{0, kFirst}, {kLast, problem.rows()}})
      EXPECT_EQ(rows_of(a, problem.rows(), first, last), rows_of(b, problem.rows(), first, last));
  };
  expect_same(before.out, after.out);
  expect_same(before.dq, after.dq);
  expect_same(before.dk, after.dk);
  expect_same(before.dv, after.dv);
}

TEST_P(Attention, LogSumExpIsOptional) {
  const Problem problem({2, 5, 2, 1, 16, 0.25f});
  const Passes passes(device(), problem, DType::f32);
  Activations out(DType::f32, problem.rows(), problem.q_cols());
  device().attention(AttentionForward{problem.shape, passes.q.view(), passes.k.view(), passes.v.view(),
                                      out.mutable_view(), nullptr});
  EXPECT_TRUE(out == passes.out);
}

TEST_P(Attention, NotANumberReachesTheResult) {
  Problem problem({1, 70, 1, 1, 16, 0.25f});
  problem.v[65 * 16] = NAN;
  const Passes passes(device(), problem, DType::f32);
  EXPECT_TRUE(std::isnan(passes.out.values()[66 * 16]));
}

TEST_P(Attention, RefusesWhatDoesNotFit) {
  const Problem problem({2, 5, 4, 2, 16, 0.25f});
  Passes passes(device(), problem, DType::f32);
  const AttentionForward good{problem.shape,   passes.q.view(),           passes.k.view(),
                              passes.v.view(), passes.out.mutable_view(), passes.log_sum_exp.data()};
  const auto refuses = [&](const auto& change) {
    AttentionForward bad = good;
    change(bad);
    EXPECT_THROW(device().attention(bad), Error);
  };
  refuses([](AttentionForward& op) { op.shape.sequence = 6; });
  refuses([](AttentionForward& op) { op.shape.sequence = 0; });
  refuses([](AttentionForward& op) { op.shape.kv_heads = 3; });
  refuses([](AttentionForward& op) { op.shape.head_dim = 15; });
  refuses([](AttentionForward& op) { op.k.cols -= 1; });
  refuses([](AttentionForward& op) { op.v.dtype = DType::bf16; });
  refuses([](AttentionForward& op) { op.q = op.q.transposed(); });
}

INSTANTIATE_TEST_SUITE_P(All, Attention, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::attention_test
