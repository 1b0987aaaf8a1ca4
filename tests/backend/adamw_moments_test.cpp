// SPDX-License-Identifier: Apache-2.0
// AdamW with moments in BF16: what is stored, to the bit; that rounding has no bias and nothing stalls; and
// that nothing depends on who computes.

#include <cmath>

#include "oracle/oracle.h"
#include "support/matrices.h"
#include "tetrad/backend/cpu/instruction_sets.h"

namespace tetrad::testing::adamw_moments_test {
namespace {

constexpr std::uint64_t kSeed = 0x0123456789ABCDEF;
constexpr AdamWStep kHyper{.tensors = {}, .learning_rate = 0.01f, .gradient_scale = 0.5f, .seed = kSeed};

/// A tensor and its optimizer state, with moments of type T.
template <typename T>
struct State {
  std::vector<float> weight, gradient;
  std::vector<T> first, second;
  std::uint32_t parameter = 3;

  explicit State(std::int64_t size)
      : weight(to_f32(random_values(size, 1))),
        gradient(weight.size()),
        first(weight.size()),
        second(weight.size()) {}

  AdamWTensor tensor() {
    return {.weight = weight.data(),
            .gradient = gradient.data(),
            .first_moment = first.data(),
            .second_moment = second.data(),
            .size = static_cast<std::int64_t>(weight.size()),
            .moments = std::is_same_v<T, Bf16> ? DType::bf16 : DType::f32,
            .parameter = parameter};
  }
  bool operator==(const State&) const = default;
};

void step(Backend& on, std::span<const AdamWTensor> tensors, AdamWStep op) {
  op.tensors = tensors;
  on.adamw(op);
}

template <typename T>
void step(Backend& on, State<T>& state, const AdamWStep& op) {
  const std::vector<AdamWTensor> tensors = {state.tensor()};
  step(on, tensors, op);
}

std::vector<float> gradient_of(std::int64_t size, std::int64_t step) {
  return to_f32(random_values(size, static_cast<unsigned>(step) + 10));
}

/// Several steps with a gradient for each.
template <typename T>
State<T> trained(Backend& on, std::int64_t size) {
  State<T> state(size);
  for (std::int64_t i = 1; i <= 3; ++i) {
    state.gradient = gradient_of(size, i);
    AdamWStep op = kHyper;
    op.step = i;
    step(on, state, op);
  }
  return state;
}

std::vector<float> widened(const std::vector<Bf16>& values) {
  std::vector<float> result;
  for (const Bf16 value : values) result.push_back(value.to_f32());
  return result;
}

class AdamWMoments : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam()); }
};

TEST_P(AdamWMoments, AreRoundedFromWhatF32WouldHold) {
  constexpr std::int64_t kSize = 70'003;
  State<Bf16> state(kSize);
  State<float> exact(kSize);
  for (std::int64_t i = 1; i <= 4; ++i) {
    state.gradient = gradient_of(kSize, i);
    exact.gradient = state.gradient;
    exact.first = widened(state.first);
    exact.second = widened(state.second);
    AdamWStep op = kHyper;
    op.step = i;
    step(device(), state, op);
    step(device(), exact, op);
    ASSERT_EQ(state.weight, exact.weight);  // it is what is stored that is rounded
    for (std::size_t k = 0; k < state.weight.size(); ++k) {
      const std::uint32_t word =
          oracle::philox({static_cast<std::uint32_t>(i), 0xFFFFFFFF, 3, static_cast<std::uint32_t>(k / 4)},
                         {0x89ABCDEF, 0x01234567})[k % 4];
      ASSERT_EQ(state.first[k].to_f32(),
                oracle::to_bf16_stochastic(exact.first[k], static_cast<int>(word % 65536)))
          << "step " << i << " element " << k;
      ASSERT_EQ(state.second[k].to_f32(),
                oracle::to_bf16_stochastic(exact.second[k], static_cast<int>(word / 65536)))
          << "step " << i << " element " << k;
    }
  }
}

TEST_P(AdamWMoments, AreTheBytesOfThePlainestProcessor) {
  const std::unique_ptr<Backend> plain =
      make_cpu_backend({.threads = 1, .instruction_set = cpu_instruction_sets().usable.back()});
  for (const std::int64_t size : {1, 7, 70'003}) {
    EXPECT_TRUE(trained<float>(device(), size) == trained<float>(*plain, size)) << size;
    EXPECT_TRUE(trained<Bf16>(device(), size) == trained<Bf16>(*plain, size)) << size;
  }
}

TEST_P(AdamWMoments, DoNotDependOnThreads) {
  expect_same_for_any_threads(GetParam(), [](Backend& on) { return trained<Bf16>(on, 100'000); });
}

TEST_P(AdamWMoments, OfPartsAreThoseOfTheWhole) {
  constexpr std::int64_t kSize = 50'001;
  State<Bf16> whole(kSize);
  whole.gradient = gradient_of(kSize, 1);
  State<Bf16> cut = whole;
  step(device(), whole, kHyper);
  std::vector<AdamWTensor> parts;
  const std::vector<std::int64_t> cuts = {0, 4, 1028, 40'000, kSize};
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    AdamWTensor& part = parts.emplace_back(cut.tensor());
    part.first = cuts[i];
    part.size = cuts[i + 1] - cuts[i];
    part.weight += part.first;
    part.gradient += part.first;
    part.first_moment = cut.first.data() + part.first;
    part.second_moment = cut.second.data() + part.first;
  }
  step(device(), parts, kHyper);
  EXPECT_TRUE(cut == whole);
}

// Many elements with the same moments, which lie three tenths of the way to the next BF16: rounded to nearest
// they would all be three tenths of a step too small.
TEST_P(AdamWMoments, AreRoundedWithoutBias) {
  constexpr std::int64_t kSize = 1 << 18;
  constexpr double kStep = 1.0 / 128;  // between BF16 values from 1 on
  State<Bf16> state(kSize);
  state.gradient.assign(state.gradient.size(), static_cast<float>(1 + 0.3 * kStep));
  AdamWStep op = kHyper;
  op.gradient_scale = 1;
  op.beta1 = op.beta2 = 0;  // the first moment becomes the gradient, the second its square
  step(device(), state, op);
  const double exact = double{state.gradient[0]};
  double first = 0;
  double second = 0;
  double product = 0;
  for (std::size_t i = 0; i < state.weight.size(); ++i) {
    const double first_error = (static_cast<double>(state.first[i].to_f32()) - exact) / kStep;
    const double second_error = (static_cast<double>(state.second[i].to_f32()) - exact * exact) / kStep;
    first += first_error;
    second += second_error;
    product += first_error * second_error;
  }
  // Errors of single elements have a standard deviation of less than half a step: five of their mean's.
  const double bound = 5 * 0.5 / std::sqrt(static_cast<double>(kSize));
  EXPECT_LT(std::abs(first / kSize), bound);
  EXPECT_LT(std::abs(second / kSize), bound);
  EXPECT_LT(std::abs(product / kSize), 0.5 * bound);  // nor do the two have anything to do with each other
}

// With a beta2 of 0.999 a step changes a moment by less than half the distance to its neighbours: rounded to
// nearest it stops for good.
TEST_P(AdamWMoments, DoNotStall) {
  constexpr std::int64_t kSize = 4096;
  constexpr std::int64_t kSteps = 700;
  constexpr float kBeta2 = 0.999f;
  const double decayed = std::pow(double{kBeta2}, kSteps);
  for (const bool grows : {false, true}) {
    State<Bf16> state(kSize);
    state.gradient.assign(state.gradient.size(), grows ? 1.0f : 0.0f);
    const float start = grows ? 0.25f : 1.0f;
    state.second.assign(state.second.size(), Bf16::from_f32(start));
    float nearest = start;
    for (std::int64_t i = 1; i <= kSteps; ++i) {
      AdamWStep op = kHyper;
      op.step = i;
      op.gradient_scale = 1;
      op.beta2 = kBeta2;
      step(device(), state, op);
      nearest = round_to_bf16(kBeta2 * nearest + (1 - kBeta2) * (grows ? 1.0f : 0.0f));
    }
    EXPECT_EQ(nearest, start);  // the trap is there
    double mean = 0;
    for (const Bf16 value : state.second) mean += static_cast<double>(value.to_f32()) / kSize;
    const double expected = grows ? 1 - (1 - double{start}) * decayed : decayed;
    EXPECT_NEAR(mean, expected, 0.01 * expected);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdamWMoments, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::adamw_moments_test
