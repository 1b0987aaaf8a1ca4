// SPDX-License-Identifier: Apache-2.0
// AdamW against double precision over several steps, and the sums of squares that clipping needs.

#include "oracle/decoder_ops.h"
#include "support/matrices.h"

namespace tetrad::testing::adamw_test {
namespace {

/// A tensor and its optimizer state.
struct State {
  std::vector<float> weight, gradient, first, second;
  bool decay = true;

  State(std::int64_t size, unsigned seed, bool decays)
      : weight(to_f32(random_values(size, seed))),
        gradient(weight.size()),
        first(weight.size()),
        second(weight.size()),
        decay(decays) {}

  AdamWTensor tensor() {
    return {
        weight.data(), gradient.data(), first.data(), second.data(), static_cast<std::int64_t>(weight.size()),
        decay};
  }
  bool operator==(const State&) const = default;
};

class AdamW : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam()); }
};

constexpr AdamWStep kHyper{.tensors = {},
                           .step = 1,
                           .learning_rate = 0.01f,
                           .beta1 = 0.9f,
                           .beta2 = 0.95f,
                           .epsilon = 1e-8f,
                           .weight_decay = 0.1f,
                           .gradient_scale = 1};

TEST_P(AdamW, FollowsTheReferenceOverManySteps) {
  for (const float gradient_scale : {1.0f, 0.125f}) {
    // Sizes around the piece that one thread gets, one that decays and one that does not.
    std::vector<State> states = {State(1, 1, true), State(7, 2, false), State((1 << 15) + 3, 3, true),
                                 State(300, 4, false)};
    std::vector<oracle::AdamW> expected;
    for (const State& state : states)
      expected.push_back({double{0.01f}, double{0.9f}, double{0.95f}, double{1e-8f},
                          state.decay ? double{0.1f} : 0.0, to_f64(state.weight)});
    for (std::int64_t step = 1; step <= 8; ++step) {
      std::vector<AdamWTensor> tensors;
      for (std::size_t i = 0; i < states.size(); ++i) {
        // Gradients of very different sizes: bias correction and epsilon both matter.
        std::vector<double> gradient =
            random_values(static_cast<std::int64_t>(states[i].weight.size()),
                          static_cast<unsigned>(100 * step) + static_cast<unsigned>(i));
        for (std::size_t k = 0; k < gradient.size(); ++k)
          gradient[k] = static_cast<double>(
              static_cast<float>(gradient[k] * std::pow(10.0, -static_cast<double>(k % 10))));
        states[i].gradient = to_f32(gradient);
        tensors.push_back(states[i].tensor());
        for (double& g : gradient) g *= static_cast<double>(gradient_scale);
        expected[i].step(gradient);
      }
      AdamWStep op = kHyper;
      op.tensors = tensors;
      op.step = step;
      op.gradient_scale = gradient_scale;
      device().adamw(op);
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
      // Eight steps of a hundredth; every step rounds a weight of about 1.
      for (std::size_t k = 0; k < states[i].weight.size(); ++k) {
        ASSERT_NEAR(states[i].weight[k], expected[i].weight[k], 1e-6) << "tensor " << i << " element " << k;
        // Moments relative to what went into them: cancellation is not theirs to repair.
        const double size = std::sqrt(expected[i].second[k]);
        ASSERT_NEAR(states[i].first[k], expected[i].first[k], 1e-6 * size);
        ASSERT_NEAR(states[i].second[k], expected[i].second[k], 2e-6 * expected[i].second[k]);
      }
    }
  }
}

TEST_P(AdamW, FirstStepHasTheSizeOfTheLearningRate) {
  State state(3, 1, false);
  state.weight = {1, 1, 1};
  state.gradient = {1e-3f, -250, 0};
  const std::vector<AdamWTensor> tensors = {state.tensor()};
  AdamWStep op = kHyper;
  op.tensors = tensors;
  device().adamw(op);
  EXPECT_NEAR(state.weight[0], 0.99, 1e-6);
  EXPECT_NEAR(state.weight[1], 1.01, 1e-6);
  EXPECT_EQ(state.weight[2], 1.0f);
}

TEST_P(AdamW, DecayIsDecoupledFromTheGradient) {
  State state(2, 1, true);
  state.weight = {2, -4};
  const std::vector<AdamWTensor> tensors = {state.tensor()};
  AdamWStep op = kHyper;
  op.tensors = tensors;
  device().adamw(op);
  EXPECT_FLOAT_EQ(state.weight[0], 2 * (1 - 0.001f));
  EXPECT_FLOAT_EQ(state.weight[1], -4 * (1 - 0.001f));
  EXPECT_EQ(state.first, std::vector<float>(2, 0.0f));
}

TEST_P(AdamW, DoesNotDependOnThreads) {
  expect_same_for_any_threads(GetParam(), [&](Backend& on) {
    State a(100'000, 1, true);
    State b(50, 2, false);
    a.gradient = to_f32(random_values(100'000, 3));
    b.gradient = to_f32(random_values(50, 4));
    const std::vector<AdamWTensor> tensors = {a.tensor(), b.tensor()};
    AdamWStep op = kHyper;
    op.tensors = tensors;
    on.adamw(op);
    return std::tuple(a, b, on.squared_norms(tensors));
  });
}

TEST_P(AdamW, SquaredNormsAreExactToDoublePrecision) {
  std::vector<State> states = {State(1, 1, true), State(100'001, 2, true), State(0, 3, true)};
  std::vector<AdamWTensor> tensors;
  std::vector<double> expected;
  for (State& state : states) {
    state.gradient = to_f32(random_values(static_cast<std::int64_t>(state.weight.size()), 5, 1e3));
    tensors.push_back(state.tensor());
    expected.push_back(dot(to_f64(state.gradient), to_f64(state.gradient)));
  }
  const std::vector<double> got = device().squared_norms(tensors);
  ASSERT_EQ(got.size(), 3u);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-13 * expected[i]);
}

TEST_P(AdamW, SquaredNormsShowWhatIsNotFiniteAndOnlyThere) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    std::vector<State> states(3, State(40'000, 1, true));
    states[0].gradient.assign(40'000, 3e38f);  // large but finite: no overflow in f64
    states[1].gradient[39'999] = bad;
    std::vector<AdamWTensor> tensors;
    for (State& state : states) tensors.push_back(state.tensor());
    const std::vector<double> got = device().squared_norms(tensors);
    EXPECT_NEAR(got[0], 40'000 * std::pow(double{3e38f}, 2), 1e-10 * got[0]);
    EXPECT_FALSE(std::isfinite(got[1])) << bad;
    EXPECT_EQ(got[2], 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdamW, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::adamw_test
