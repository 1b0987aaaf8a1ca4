// BF16 attention on views whose rows are aligned to 16 bytes, with the head dimensions of real models: where
// backends have their fast forms, which the odd views of attention_test.cpp never reach.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "oracle/attention.h"
#include "support/activations.h"
#include "support/backends.h"

namespace tetrad::testing {
namespace {

constexpr double kBf16Error = 0x1p-8;
constexpr double kF32Error = 1e-5;

/// Shorter than a tile, of one tile exactly, and of several with a part of one; groups of 1, 2 and 4 heads.
const std::vector<AttentionShape>& shapes() {
  static const std::vector<AttentionShape> all = {{2, 5, 4, 2, 64, 0.125f},   {1, 67, 2, 1, 128, 0.09f},
                                                  {2, 128, 2, 2, 64, 0.125f}, {2, 200, 4, 1, 64, 0.2f},
                                                  {1, 257, 2, 1, 128, 0.1f},  {1, 300, 3, 3, 64, 0.125f},
                                                  {2, 321, 2, 1, 128, 0.09f}};
  return all;
}

/// Columns of a wider matrix; before and after them are NaN.
class AlignedMatrix {
 public:
  AlignedMatrix(std::int64_t rows, std::int64_t cols)
      : rows_(rows), cols_(cols), blocks_(static_cast<std::size_t>(rows * stride() / kAligned)) {
    for (Block& block : blocks_)
      for (Bf16& value : block.values) value = Bf16::from_f32(NAN);
  }
  AlignedMatrix(std::int64_t rows, std::int64_t cols, const Values& values) : AlignedMatrix(rows, cols) {
    for (std::int64_t i = 0; i < rows * cols; ++i)
      at(i) = Bf16::from_f32(static_cast<float>(values[static_cast<std::size_t>(i)]));
  }

  MatrixView view(std::int64_t first, std::int64_t count) const {
    return {&blocks_[static_cast<std::size_t>(first * stride() / kAligned + 1)],
            DType::bf16,
            count,
            cols_,
            stride(),
            1};
  }
  MatrixView view() const { return view(0, rows_); }
  MutableMatrixView mutable_view() { return {&blocks_[1], DType::bf16, rows_, cols_, stride(), 1}; }

  Values values() {
    Values result;
    for (std::int64_t i = 0; i < rows_ * cols_; ++i) result.push_back(at(i).to_f32());
    return result;
  }
  bool surroundings_are_untouched() const {
    std::int64_t numbers = 0;
    for (const Block& block : blocks_)
      for (const Bf16 value : block.values) numbers += std::isnan(value.to_f32()) ? 0 : 1;
    return numbers == rows_ * cols_;
  }

 private:
  static constexpr std::int64_t kAligned = 8;
  struct alignas(16) Block {
    Bf16 values[kAligned];
  };

  std::int64_t stride() const { return kAligned + cols_ + 2 * kAligned; }
  Bf16& at(std::int64_t i) {
    const std::int64_t place = i / cols_ * stride() + kAligned + i % cols_;
    return blocks_[static_cast<std::size_t>(place / kAligned)].values[place % kAligned];
  }

  std::int64_t rows_, cols_;
  std::vector<Block> blocks_;
};

class AlignedAttention : public ::testing::TestWithParam<std::string> {
 protected:
  static Backend& device() { return backend(GetParam()); }
};

struct Inputs {
  std::int64_t rows, q_cols, kv_cols;
  Values q, k, v, dout;

  explicit Inputs(const AttentionShape& shape)
      : rows(shape.batch * shape.sequence),
        q_cols(shape.heads * shape.head_dim),
        kv_cols(shape.kv_heads * shape.head_dim),
        q(normal_values(rows * q_cols, 1)),
        k(normal_values(rows * kv_cols, 2)),
        v(normal_values(rows * kv_cols, 3)),
        dout(normal_values(rows * q_cols, 4)) {}
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
    device.attention(
        AttentionForward{shape, q.view(), k.view(), v.view(), out.mutable_view(), log_sum_exp.data()});
    device.attention(AttentionBackward{shape, q.view(), k.view(), v.view(), out.view(), log_sum_exp.data(),
                                       dout.view(), dq.mutable_view(), dk.mutable_view(), dv.mutable_view()});
  }
};

TEST_P(AlignedAttention, IsTheDefinitionAndItsDerivative) {
  for (const AttentionShape& shape : shapes()) {
    SCOPED_TRACE(
        fmt::format("batch {}, sequence {}, head_dim {}", shape.batch, shape.sequence, shape.head_dim));
    const Inputs in(shape);
    const AlignedMatrix q(in.rows, in.q_cols, in.q);
    const AlignedMatrix k(in.rows, in.kv_cols, in.k);
    const AlignedMatrix v(in.rows, in.kv_cols, in.v);
    const AlignedMatrix dout(in.rows, in.q_cols, in.dout);
    AlignedMatrix out(in.rows, in.q_cols);
    AlignedMatrix dq(in.rows, in.q_cols);
    AlignedMatrix dk(in.rows, in.kv_cols);
    AlignedMatrix dv(in.rows, in.kv_cols);
    std::vector<float> log_sum_exp(static_cast<std::size_t>(in.rows * shape.heads));
    device().attention(
        AttentionForward{shape, q.view(), k.view(), v.view(), out.mutable_view(), log_sum_exp.data()});
    device().attention(AttentionBackward{shape, q.view(), k.view(), v.view(), out.view(), log_sum_exp.data(),
                                         dout.view(), dq.mutable_view(), dk.mutable_view(),
                                         dv.mutable_view()});

    Values expected_log_sum_exp;
    const Values expected = oracle::attention(
        {shape.batch, shape.sequence, shape.heads, shape.kv_heads, shape.head_dim, double{shape.scale}}, in.q,
        in.k, in.v, &expected_log_sum_exp);
    EXPECT_LT(relative_error(out.values(), expected), kBf16Error);
    EXPECT_LT(relative_error(log_sum_exp, expected_log_sum_exp), kF32Error);
    const Gradients gradients(device(), shape, in);
    EXPECT_LT(relative_error(dq.values(), gradients.dq.values()), 2 * kBf16Error);
    EXPECT_LT(relative_error(dk.values(), gradients.dk.values()), 2 * kBf16Error);
    EXPECT_LT(relative_error(dv.values(), gradients.dv.values()), 2 * kBf16Error);
    for (const AlignedMatrix* written : {&out, &dq, &dk, &dv})
      EXPECT_TRUE(written->surroundings_are_untouched());
  }
}

TEST_P(AlignedAttention, DecodeIsTheForwardPassContinued) {
  const AttentionShape shape{1, 400, 4, 2, 64, 0.125f};
  const Inputs in(shape);
  const AlignedMatrix q(in.rows, in.q_cols, in.q);
  const AlignedMatrix k(in.rows, in.kv_cols, in.k);
  const AlignedMatrix v(in.rows, in.kv_cols, in.v);
  const Values expected =
      oracle::attention({1, shape.sequence, shape.heads, shape.kv_heads, shape.head_dim, double{shape.scale}},
                        in.q, in.k, in.v);
  std::int64_t cached = 0;
  for (const std::int64_t count : {70, 1, 130, 3, 66, 1, 129}) {
    AttentionShape part = shape;
    part.sequence = count;
    AlignedMatrix out(count, in.q_cols);
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

INSTANTIATE_TEST_SUITE_P(All, AlignedAttention, ::testing::ValuesIn(backend_names()));

}  // namespace
}  // namespace tetrad::testing
