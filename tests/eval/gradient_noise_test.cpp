// SPDX-License-Identifier: Apache-2.0
// Bias and variance of gradients against their definition: every pair of draws, in double precision.

#include <gtest/gtest.h>

#include <random>

#include "support/cpu.h"
#include "support/models.h"
#include "tetrad/eval/gradient_noise.h"
#include "tetrad/parallel/self_communicator.h"

namespace tetrad::testing {
namespace {

constexpr std::int64_t kSequences = 2;
constexpr std::int64_t kLength = 32;
constexpr std::int64_t kDraws = 5;

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// The definition, with a loop over pairs.
GradientNoise noise_by_pairs(const std::vector<Vector>& draws, const Vector& reference) {
  std::vector<Vector> errors = draws;
  for (Vector& error : errors)
    for (std::size_t i = 0; i < error.size(); ++i) error[i] -= reference[i];
  double pairs = 0;
  double squares = 0;
  for (std::size_t k = 0; k < errors.size(); ++k)
    for (std::size_t l = 0; l < errors.size(); ++l) (k == l ? squares : pairs) += dot(errors[k], errors[l]);
  const auto count = static_cast<double>(errors.size());
  const double bias = pairs / (count * (count - 1)) / dot(reference, reference);
  return {bias, squares / count / dot(reference, reference) - bias};
}

class GradientNoiseTest : public ::testing::Test {
 protected:
  GradientNoiseTest() {
    decoder_.initialize(3);
    std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same in every run
    const auto vocab = static_cast<std::uint32_t>(tiny_llama().vocab);
    batches_.resize(2);
    for (Microbatch& batch : batches_)
      for (std::int64_t i = 0; i < kSequences * kLength; ++i) {
        batch.inputs.push_back(static_cast<std::int32_t>(random() % vocab));
        batch.targets.push_back(static_cast<std::int32_t>(random() % vocab));
      }
    pass_.seed = 11;
    pass_.step = 3;
  }

  Recipe recipe(const std::string& name, const std::function<void(PrecisionConfig&)>& change = {}) const {
    PrecisionConfig config;
    config.recipe = name;
    config.high_precision = {0, 0, {}, {}};
    if (change) change(config);
    return {config, tiny_llama().blocks()};
  }

  std::vector<std::vector<DrawSums>> measure(const Recipe& of, std::int64_t draws = kDraws) {
    const std::optional<Recipe> reference = without_backward_quantizers(of, decoder_, pass_.progress);
    return measure_gradient_noise(decoder_, {alone_, of, *reference, batches_, draws, pass_, {}});
  }
  /// All parameters of a microbatch as one.
  static GradientNoise whole(const std::vector<DrawSums>& sums, std::int64_t draws = kDraws) {
    DrawSums all;
    for (const DrawSums& one : sums) all.add(one);
    return all.noise(draws);
  }

  std::vector<float> losses(const Recipe& of, std::uint32_t draw = 0) {
    Pass pass = pass_;
    pass.recipe = &of;
    pass.draw = draw;
    return differentiate(decoder_, pass, batches_[0]);
  }
  Vector gradient(const std::string& parameter) {
    for (const auto& one : decoder_.parameters())
      if (one->name == parameter) return {one->gradient.f32(), one->gradient.f32() + one->gradient.size()};
    throw std::runtime_error("no parameter " + parameter);
  }

  SelfCommunicator alone_;
  Decoder decoder_{cpu_backend(1), tiny_llama(), kSequences, kLength};
  std::vector<Microbatch> batches_;
  Pass pass_;
};

TEST_F(GradientNoiseTest, SumsGiveWhatAllPairsGive) {
  const Recipe nvfp4 = recipe("nvfp4");
  const std::vector<std::vector<DrawSums>> measured = measure(nvfp4);
  ASSERT_EQ(measured.size(), batches_.size());
  const Recipe reference = *without_backward_quantizers(nvfp4, decoder_, 0);
  for (std::size_t k = 0; k < decoder_.parameters().size(); ++k) {
    const std::string name = decoder_.parameters()[k]->name;
    if (!name.ends_with("down.weight") && !name.ends_with("qkv.weight")) continue;
    losses(reference);
    const Vector g = gradient(name);
    std::vector<Vector> draws;
    for (std::uint32_t draw = 0; draw < kDraws; ++draw) {
      losses(nvfp4, draw);
      draws.push_back(gradient(name));
    }
    const GradientNoise expected = noise_by_pairs(draws, g);
    const GradientNoise got = measured[0][k].noise(kDraws);
    // Deviations and their sum are rounded to f32.
    EXPECT_NEAR(got.bias, expected.bias, 1e-6 * expected.variance) << name;
    EXPECT_NEAR(got.variance, expected.variance, 1e-6 * expected.variance) << name;
    EXPECT_GT(got.variance, 0) << name;
  }
}

TEST_F(GradientNoiseTest, TheReferenceHasTheSameForwardPass) {
  const std::vector<std::pair<std::string, std::function<void(PrecisionConfig&)>>> cases = {
      {"nvfp4", {}},
      {"mxfp4", {}},
      {"tetrad", {}},
      {"fp8", {}},
      // Draws leave the forward pass alone, also where it has random numbers of its own.
      {"nvfp4",
       [](PrecisionConfig& config) {
         config.sr = {"gradients", "activations", "weights"};
       }},
      {"nvfp4", [](PrecisionConfig& config) { config.high_precision.fp8 = {"blocks.1.*"}; }},
      {"bf16", [](PrecisionConfig& config) {
         config.schedule = {{0, "bf16", "nvfp4"}};
       }}};
  for (const auto& [name, change] : cases) {
    const Recipe of = recipe(name, change);
    const Recipe reference = *without_backward_quantizers(of, decoder_, 0);
    const std::vector<float> expected = losses(of);
    EXPECT_EQ(losses(reference), expected) << name;
    EXPECT_EQ(losses(of, 3), expected) << name;
    for (const Linear* linear : decoder_.linears())
      for (const Operand operand : {Operand::dgrad_dy, Operand::dgrad_w, Operand::wgrad_dy, Operand::wgrad_x})
        EXPECT_FALSE(reference.at(linear->layer_id(), 0)[operand].has_value()) << name;
    for (const std::vector<DrawSums>& sums :
         measure_gradient_noise(decoder_, {alone_, reference, reference, batches_, 2, pass_, {}}))
      EXPECT_EQ(whole(sums, 2).bias, 0) << name;
  }
}

TEST_F(GradientNoiseTest, NearestRoundingIsBiasedAndStochasticRoundingNoisy) {
  // Only dy is quantized, with scales that nothing saturates with; and the backward pass is linear in dy.
  const auto gradients_alone = [](PrecisionConfig& config) {
    config.schedule = {{0, "bf16", "mxfp4"}};
    for (const char* operand : {"dgrad.w", "wgrad.x"}) config.operands[operand].format = "bf16";
  };
  const auto rounded_to_nearest = [&](PrecisionConfig& config) {
    gradients_alone(config);
    config.sr.emplace();
  };
  constexpr std::int64_t kMany = 16;
  const std::vector<std::vector<DrawSums>> biased = measure(recipe("bf16", rounded_to_nearest));
  const std::vector<std::vector<DrawSums>> noisy = measure(recipe("bf16", gradients_alone), kMany);
  for (std::size_t i = 0; i < batches_.size(); ++i) {
    const GradientNoise nearest = whole(biased[i]);
    const GradientNoise stochastic = whole(noisy[i], kMany);
    EXPECT_GT(nearest.bias, 1e-3);
    EXPECT_NEAR(nearest.variance, 0, 1e-6 * nearest.bias) << "all draws are the same";
    EXPECT_NEAR(stochastic.bias, 0, 0.1 * nearest.bias);
    EXPECT_GT(stochastic.variance, nearest.bias) << "what rounds both ways is further off";
  }
}

TEST_F(GradientNoiseTest, TransformedForwardPassesHaveNoReference) {
  const Recipe transformed = recipe("nvfp4", [](PrecisionConfig& config) {
    config.rht.gemms = {"fprop", "wgrad"};
  });
  EXPECT_FALSE(without_backward_quantizers(transformed, decoder_, 0).has_value());
}

}  // namespace
}  // namespace tetrad::testing
