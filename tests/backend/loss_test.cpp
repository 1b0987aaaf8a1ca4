// SPDX-License-Identifier: Apache-2.0
// Head and cross-entropy in one operation against double precision: losses and both gradients.

#include "oracle/decoder_ops.h"
#include "support/gradient.h"
#include "support/matrices.h"
#include "tetrad/core/error.h"

namespace tetrad::testing::loss_test {
namespace {

constexpr std::int32_t kIgnore = CrossEntropy::kIgnore;

/// A problem and what the operation makes of it.
struct Case {
  Storage storage;
  std::int64_t tokens, vocab, width;
  float gradient_scale = 1;
  float z_loss = 0;
  TestMatrix hidden;
  TestMatrix head;
  std::vector<std::int32_t> targets;

  Case(Storage s, std::int64_t token_count, std::int64_t vocabulary, std::int64_t columns, double spread)
      : storage(s),
        tokens(token_count),
        vocab(vocabulary),
        width(columns),
        hidden(s, tokens, width, random_values(tokens * width, 1, spread)),
        head({s.dtype, false}, vocab, width, random_values(vocab * width, 2, spread)),
        targets(static_cast<std::size_t>(tokens)) {
    std::mt19937 generator(3);
    std::uniform_int_distribution<std::int32_t> pick(0, static_cast<std::int32_t>(vocab) - 1);
    for (std::int32_t& target : targets) target = pick(generator);
  }

  oracle::Values expected_losses() const {
    return oracle::cross_entropy(hidden.values(), head.values(), targets, width);
  }
};

struct Outcome {
  std::vector<float> losses;
  TestMatrix dhidden;
  std::vector<float> dhead;
  bool operator==(const Outcome& other) const {
    return losses == other.losses && dhidden.same_bytes(other.dhidden) && dhead == other.dhead;
  }
};

Outcome run(Backend& device, const Case& c, bool backward = true) {
  Outcome result{std::vector<float>(c.targets.size(), NAN), TestMatrix(c.storage, c.tokens, c.width),
                 to_f32(random_values(c.vocab * c.width, 9, 0.01))};
  CrossEntropy op{
      c.hidden.view(), c.head.view(), c.targets.data(), result.losses.data(), c.gradient_scale, {},
      nullptr,         c.z_loss};
  if (backward) {
    op.dhidden = result.dhidden.mutable_view();
    op.dhead = result.dhead.data();
  }
  device.cross_entropy(op);
  return result;
}

/// Gradients by the formula: (softmax (1 + 2 z log_sum) - one-hot) * scale through the two factors of the
/// logits.
struct Gradients {
  std::vector<double> dhidden, dhead;
};
Gradients expected_gradients(const Case& c, const std::vector<double>& losses) {
  const std::vector<double> hidden = c.hidden.values();
  const std::vector<double> head = c.head.values();
  Gradients result{std::vector<double>(hidden.size()),
                   to_f64(to_f32(random_values(c.vocab * c.width, 9, 0.01)))};
  const auto width = static_cast<std::size_t>(c.width);
  for (std::size_t t = 0; t < c.targets.size(); ++t) {
    if (c.targets[t] == kIgnore) continue;
    std::vector<double> logits(static_cast<std::size_t>(c.vocab));
    for (std::size_t v = 0; v < logits.size(); ++v)
      for (std::size_t i = 0; i < width; ++i) logits[v] += hidden[t * width + i] * head[v * width + i];
    const auto target = static_cast<std::size_t>(c.targets[t]);
    const double log_sum = losses[t] + logits[target];
    for (std::size_t v = 0; v < logits.size(); ++v) {
      const double share = 1 + 2 * static_cast<double>(c.z_loss) * log_sum;
      const double d = (std::exp(logits[v] - log_sum) * share - (v == target ? 1.0 : 0.0)) *
                       static_cast<double>(c.gradient_scale);
      for (std::size_t i = 0; i < width; ++i) {
        result.dhidden[t * width + i] += d * head[v * width + i];
        result.dhead[v * width + i] += d * hidden[t * width + i];
      }
    }
  }
  return result;
}

/// In BF16 the gradients of the logits are rounded to BF16 (2^-8 each) before they are multiplied; their
/// errors are independent, so a sum of many is better than that, but a sum that one of them dominates is not.
double gradient_tolerance(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : 1e-5; }

class CrossEntropyOp : public OpTest {};
class CrossEntropyInF32 : public OpTest {};
class CrossEntropyInChunks : public OpTest {
};  // chunks of vocabulary and of tokens: large, so not strided too

TEST_P(CrossEntropyOp, LossesAndGradientsEqualTheFormula) {
  struct Shape {
    std::int64_t tokens, vocab, width;
  };
  for (const auto& [tokens, vocab, width] : {Shape{1, 1, 1}, Shape{5, 3, 7}, Shape{33, 130, 16}}) {
    Case c(storage(), tokens, vocab, width, 0.8);
    c.gradient_scale = 0.37f;
    if (tokens > 4) c.targets[2] = c.targets[4] = kIgnore;
    const std::vector<double> losses = c.expected_losses();
    const Outcome got = run(device(), c);
    EXPECT_TRUE(close(got.losses, losses, 2e-6)) << tokens << " x " << vocab;
    const Gradients expected = expected_gradients(c, losses);
    EXPECT_TRUE(close(got.dhidden.values(), expected.dhidden, dtype(), gradient_tolerance(dtype())));
    EXPECT_TRUE(close(got.dhead, expected.dhead, gradient_tolerance(dtype())));
    EXPECT_TRUE(got.dhidden.guards_untouched());
  }
}

TEST_P(CrossEntropyOp, TheZLossIsInTheGradientsAlone) {
  for (const std::int64_t vocab : {3, 130, 8200}) {
    Case c(storage(), 7, vocab, 16, 0.8);
    c.z_loss = 0.02f;
    c.targets[2] = kIgnore;
    const std::vector<double> losses = c.expected_losses();
    const Outcome got = run(device(), c);
    EXPECT_TRUE(close(got.losses, losses, 2e-6)) << vocab;
    const Gradients expected = expected_gradients(c, losses);
    EXPECT_TRUE(close(got.dhidden.values(), expected.dhidden, dtype(), gradient_tolerance(dtype()))) << vocab;
    EXPECT_TRUE(close(got.dhead, expected.dhead, gradient_tolerance(dtype()))) << vocab;
  }
}

TEST_P(CrossEntropyInF32, GradientsAreThoseOfFiniteDifferences) {
  Case c(storage(), 6, 17, 5, 1);
  c.z_loss = 0.05f;
  const Outcome got = run(device(), c);
  const auto total = [&](const std::vector<double>& hidden, const std::vector<double>& head) {
    const auto width = static_cast<std::size_t>(c.width);
    const oracle::Values losses = oracle::cross_entropy(hidden, head, c.targets, c.width);
    double sum = 0;
    for (std::size_t t = 0; t < c.targets.size(); ++t) {
      double log_sum = losses[t];
      for (std::size_t i = 0; i < width; ++i)
        log_sum += hidden[t * width + i] * head[static_cast<std::size_t>(c.targets[t]) * width + i];
      sum += losses[t] + static_cast<double>(c.z_loss) * log_sum * log_sum;
    }
    return sum;
  };
  const auto dhidden =
      numeric_gradient([&](const auto& v) { return total(v, c.head.values()); }, c.hidden.values());
  const auto dhead =
      numeric_gradient([&](const auto& v) { return total(c.hidden.values(), v); }, c.head.values());
  EXPECT_TRUE(close(got.dhidden.values(), dhidden, dtype(), 1e-5));
  const std::vector<double> start = to_f64(to_f32(random_values(c.vocab * c.width, 9, 0.01)));
  EXPECT_TRUE(close(got.dhead, sum_of(start, dhead), 1e-5)) << "the gradient is added to what was there";
}

TEST_P(CrossEntropyInChunks, EqualsTheFormula) {
  struct Shape {
    std::int64_t tokens, vocab;
  };
  for (const auto& [tokens, vocab] : {Shape{3, 20000}, Shape{520, 64}, Shape{514, 8193}}) {
    Case c(storage(), tokens, vocab, 4, 0.7);
    c.targets[0] = 0;
    c.targets[1] = static_cast<std::int32_t>(vocab) - 1;
    c.targets[static_cast<std::size_t>(tokens) - 1] = kIgnore;
    if (vocab > 8192) c.targets[static_cast<std::size_t>(tokens) - 2] = 8192;
    const std::vector<double> losses = c.expected_losses();
    const Outcome got = run(device(), c);
    EXPECT_TRUE(close(got.losses, losses, 2e-6)) << tokens << " x " << vocab;
    const Gradients expected = expected_gradients(c, losses);
    EXPECT_TRUE(close(got.dhidden.values(), expected.dhidden, dtype(), gradient_tolerance(dtype())));
    EXPECT_TRUE(close(got.dhead, expected.dhead, gradient_tolerance(dtype())));
  }
}

TEST_P(CrossEntropyOp, WithoutGradientsGivesTheSameLossesAndTouchesNothingElse) {
  Case c(storage(), 10, 9000, 4, 1);
  c.targets[3] = kIgnore;
  const Outcome forward = run(device(), c, false);
  EXPECT_EQ(forward.losses, run(device(), c, true).losses);
  EXPECT_EQ(forward.losses[3], 0.0f);
  EXPECT_TRUE(forward.dhidden.same_bytes(TestMatrix(storage(), c.tokens, c.width)));
  EXPECT_EQ(forward.dhead, to_f32(random_values(c.vocab * c.width, 9, 0.01)));
}

TEST_P(CrossEntropyOp, AllTargetsIgnoredGivesZeroEverywhere) {
  Case c(storage(), 5, 30, 4, 1);
  std::fill(c.targets.begin(), c.targets.end(), kIgnore);
  const Outcome got = run(device(), c);
  EXPECT_EQ(got.losses, std::vector<float>(5, 0.0f));
  EXPECT_EQ(got.dhidden.values(), std::vector<double>(20, 0.0));
  EXPECT_EQ(got.dhead, to_f32(random_values(c.vocab * c.width, 9, 0.01)));
}

TEST_P(CrossEntropyOp, HugeLogitsDoNotOverflow) {
  // Logits of +-2^13 and beyond: exp() of any of them would be infinite or zero.
  Case c(storage(), 8, 40, 3, 90);
  c.targets[0] = kIgnore;
  const std::vector<double> losses = c.expected_losses();
  const Outcome got = run(device(), c);
  double largest_loss = 0;
  for (const double loss : losses) largest_loss = std::max(largest_loss, loss);
  ASSERT_GT(largest_loss, 5000);
  EXPECT_TRUE(close(got.losses, losses, 2e-6));
  const Gradients expected = expected_gradients(c, losses);
  // A logit of 2^14 is known to 2^-10 in f32, and so is a probability.
  const double tolerance = dtype() == DType::bf16 ? 0x1p-7 : 0x1p-9;
  EXPECT_TRUE(close(got.dhidden.values(), expected.dhidden, dtype(), tolerance));
  EXPECT_TRUE(close(got.dhead, expected.dhead, tolerance));
}

TEST_P(CrossEntropyOp, CertainPredictionsCostNothing) {
  // One logit far above all others, and it is the target.
  const Case base(storage(), 1, 2, 1, 1);
  Case c = base;
  c.hidden = TestMatrix(storage(), 1, 1, {100});
  c.head = TestMatrix({dtype(), false}, 2, 1, {100, -100});
  c.targets = {0};
  const Outcome got = run(device(), c);
  EXPECT_EQ(got.losses[0], 0.0f);
  EXPECT_EQ(got.dhidden.values()[0], 0.0);
}

TEST_P(CrossEntropyOp, NaNReachesTheLoss) {
  Case c(storage(), 4, 50, 8, 1);
  std::vector<double> hidden = c.hidden.values();
  hidden[8] = std::nan("");
  c.hidden = TestMatrix(storage(), 4, 8, hidden);
  const Outcome got = run(device(), c);
  EXPECT_TRUE(std::isnan(got.losses[1]));
  EXPECT_FALSE(std::isnan(got.losses[0]));
}

TEST_P(CrossEntropyOp, DoesNotDependOnThreads) {
  const Case c(storage(), 40, 9000, 16, 0.5);
  expect_same_for_any_threads(backend_name(), [&](Backend& on) { return run(on, c); });
}

TEST_P(CrossEntropyOp, RefusesTargetsOutsideTheVocabulary) {
  if (device().name() != "cpu") GTEST_SKIP() << "ids on a device are checked before they are copied there";
  Case c(storage(), 4, 10, 4, 1);
  for (const std::int32_t bad : {10, -2, std::numeric_limits<std::int32_t>::max()}) {
    c.targets[3] = bad;
    EXPECT_THROW(run(device(), c), Error) << bad;
  }
}

TEST_P(CrossEntropyOp, RefusesShapesThatDoNotFit) {
  Case c(storage(), 4, 10, 4, 1);
  c.head = TestMatrix({dtype(), false}, 10, 5, random_values(50, 1));
  EXPECT_THROW(run(device(), c), Error);
  const DType other = dtype() == DType::f32 ? DType::bf16 : DType::f32;
  c.head = TestMatrix({other, false}, 10, 4, random_values(40, 1));
  EXPECT_THROW(run(device(), c), Error);
}

TETRAD_INSTANTIATE_OP_TEST(CrossEntropyOp);
INSTANTIATE_TEST_SUITE_P(All, CrossEntropyInF32,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::Values(DType::f32), ::testing::Bool()),
                         op_test_name);
INSTANTIATE_TEST_SUITE_P(All, CrossEntropyInChunks,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(false)),
                         op_test_name);

}  // namespace
}  // namespace tetrad::testing::loss_test
