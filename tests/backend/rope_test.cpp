// SPDX-License-Identifier: Apache-2.0
// Rotary positions against double precision, and the frequencies with and without Llama 3's scaling.

#include "oracle/decoder_ops.h"
#include "support/documents.h"
#include "support/matrices.h"
#include "tetrad/core/error.h"

namespace tetrad::testing::rope_test {
namespace {

TEST(RopeFrequencies, AreThoseOfTheFormula) {
  for (const double theta : {10000.0, 500000.0})
    for (const std::int64_t dim : {2, 16, 64, 128}) {
      EXPECT_TRUE(
          close(rope_frequencies(dim, theta, nullptr), oracle::rope_frequencies(dim, theta, nullptr), 1e-7));
      for (const auto& [factor, low, high, context] :
           {RopeScaling{8, 1, 4, 8192}, RopeScaling{32, 1, 4, 8192}, RopeScaling{2, 1.5, 2, 100}}) {
        const RopeScaling scaling{factor, low, high, context};
        const oracle::RopeStretch stretch{factor, low, high, static_cast<double>(context)};
        const std::vector<float> got = rope_frequencies(dim, theta, &scaling);
        const std::vector<double> expected = oracle::rope_frequencies(dim, theta, &stretch);
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i)  // each to its own digits: the small ones matter most
          EXPECT_NEAR(got[i], expected[i], 1e-7 * expected[i]) << "frequency " << i << " of " << dim;
      }
    }
}

TEST(RopeFrequencies, ScalingKeepsShortWavesAndStretchesLongOnes) {
  const RopeScaling scaling;  // 8, 1, 4, 8192
  const std::vector<float> plain = rope_frequencies(128, 500000, nullptr);
  const std::vector<float> scaled = rope_frequencies(128, 500000, &scaling);
  EXPECT_EQ(scaled.front(), plain.front());
  EXPECT_FLOAT_EQ(scaled.back(), plain.back() / 8);
  std::size_t between = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_LE(scaled[i], plain[i]);
    EXPECT_GE(scaled[i], plain[i] / 8.0001f);
    if (scaled[i] < 0.999f * plain[i] && scaled[i] > 1.001f * plain[i] / 8) ++between;
  }
  EXPECT_GT(between, 0u) << "no frequency lies in the blended range, so this tests too little";
}

struct Problem {
  std::int64_t batch, sequence, heads, head_dim, first_position;
};

class RopeOp : public OpTest {};

TEST_P(RopeOp, TurnsPairsByTheirPosition) {
  for (const auto& [batch, sequence, heads, head_dim, first] :
       {Problem{1, 1, 1, 2, 0}, Problem{2, 5, 3, 6, 0}, Problem{3, 7, 2, 16, 11},
        Problem{1, 3, 1, 64, 100000}, Problem{2, 300, 2, 32, 0}}) {
    const std::int64_t rows = batch * sequence;
    const std::int64_t width = heads * head_dim;
    const std::vector<float> frequencies = rope_frequencies(head_dim, 10000, nullptr);
    for (const bool inverse : {false, true}) {
      TestMatrix x(storage(), rows, width, random_values(rows * width, 1));
      const std::vector<double> expected =
          oracle::rope(x.values(), width, sequence, first, to_f64(frequencies), inverse);
      device().rope(Rope{x.mutable_view(), sequence, head_dim, first, frequencies.data(), inverse});
      // The angle is an f32 product (as in other implementations): half a step of the largest angle.
      const double angle_error = 0x1p-24 * static_cast<double>(first + sequence);
      EXPECT_TRUE(close(x.values(), expected, dtype(), 3e-7 + angle_error))
          << rows << " x " << width << " from position " << first << (inverse ? " back" : "");
      EXPECT_TRUE(x.guards_untouched());
    }
  }
}

TEST_P(RopeOp, PositionsBeginAnewWithEachDocument) {
  constexpr std::int64_t kSequence = 150;
  constexpr std::int64_t kRows = 2 * kSequence;
  const std::vector<float> frequencies = rope_frequencies(16, 10000, nullptr);
  const DocumentStarts starts = some_documents(2, kSequence);
  for (const bool inverse : {false, true}) {
    TestMatrix x(storage(), kRows, 32, random_values(kRows * 32, 1));
    const std::vector<double> expected =
        oracle::rope(x.values(), 32, kSequence, 0, to_f64(frequencies), inverse, starts);
    device().rope(Rope{x.mutable_view(), kSequence, 16, 0, frequencies.data(), inverse, starts.data()});
    EXPECT_TRUE(close(x.values(), expected, dtype(), 3e-7 + 0x1p-24 * kSequence));
    EXPECT_TRUE(x.guards_untouched());
  }
}

TEST_P(RopeOp, TurnsBack) {
  const std::vector<float> frequencies = rope_frequencies(8, 10000, nullptr);
  const std::vector<double> values = random_values(24 * 16, 1);
  TestMatrix x(storage(), 24, 16, values);
  const std::vector<double> before = x.values();
  device().rope(Rope{x.mutable_view(), 12, 8, 5, frequencies.data(), false});
  device().rope(Rope{x.mutable_view(), 12, 8, 5, frequencies.data(), true});
  // Two roundings of pairs whose length is at most sqrt(2) of the largest element.
  EXPECT_TRUE(close(x.values(), before, DType::f32, dtype() == DType::bf16 ? 0.012 : 5e-7));
}

class RopeInF32 : public OpTest {};

TEST_P(RopeInF32, ScoresDependOnDistanceOnly) {
  const std::vector<float> frequencies = rope_frequencies(16, 10000, nullptr);
  const auto score = [&](std::int64_t q_position, std::int64_t k_position) {
    TestMatrix q(storage(), 1, 16, random_values(16, 1));
    TestMatrix k(storage(), 1, 16, random_values(16, 2));
    device().rope(Rope{q.mutable_view(), 1, 16, q_position, frequencies.data(), false});
    device().rope(Rope{k.mutable_view(), 1, 16, k_position, frequencies.data(), false});
    return dot(q.values(), k.values());
  };
  EXPECT_NEAR(score(9, 4), score(105, 100), 1e-4);
  EXPECT_GT(std::abs(score(9, 4) - score(9, 5)), 1e-2);
}

TEST_P(RopeOp, DoesNotDependOnThreads) {
  const std::vector<float> frequencies = rope_frequencies(32, 10000, nullptr);
  expect_same_for_any_threads(backend_name(), [&](Backend& on) {
    TestMatrix x(storage(), 1200, 64, random_values(1200 * 64, 1));
    on.rope(Rope{x.mutable_view(), 600, 32, 0, frequencies.data(), false});
    return x.values();
  });
}

TEST_P(RopeOp, RefusesShapesThatDoNotFit) {
  const std::vector<float> frequencies(8, 1.0f);
  TestMatrix x(storage(), 6, 12, random_values(72, 1));
  EXPECT_THROW(device().rope(Rope{x.mutable_view(), 4, 4, 0, frequencies.data(), false}), Error);
  EXPECT_THROW(device().rope(Rope{x.mutable_view(), 3, 8, 0, frequencies.data(), false}), Error);
  EXPECT_THROW(device().rope(Rope{x.mutable_view(), 3, 3, 0, frequencies.data(), false}), Error);
  EXPECT_THROW(device().rope(Rope{x.mutable_view(), 0, 4, 0, frequencies.data(), false}), Error);
  EXPECT_THROW(device().rope(Rope{x.mutable_view(), 3, 0, 0, frequencies.data(), false}), Error);
}

TETRAD_INSTANTIATE_OP_TEST(RopeOp);
INSTANTIATE_TEST_SUITE_P(All, RopeInF32,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::Values(DType::f32), ::testing::Bool()),
                         op_test_name);

}  // namespace
}  // namespace tetrad::testing::rope_test
