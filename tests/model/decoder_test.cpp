// SPDX-License-Identifier: Apache-2.0
// Whole models: gradients against finite differences of the loss, generation against evaluation, initial
// weights, independence of threads and of how a batch is cut, and that every recipe learns.

#include "tetrad/model/decoder.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "support/gradient.h"
#include "support/matrices.h"
#include "support/models.h"
#include "tetrad/backend/cpu/instruction_sets.h"
#include "tetrad/core/error.h"

namespace tetrad::testing::decoder_test {
namespace {

using Tokens = std::vector<std::int32_t>;

Recipe recipe_of(const std::string& name, const ModelConfig& model) {
  PrecisionConfig config;
  config.recipe = name;
  config.high_precision.first = 0;  // in so small a model every block shall be what the recipe is about
  config.high_precision.last = 0;
  return {config, model.blocks()};
}

Tokens some_tokens(std::int64_t count, std::int64_t vocab, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> pick(0, static_cast<std::int32_t>(vocab) - 1);
  Tokens tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens) token = pick(generator);
  return tokens;
}

/// A model with a batch to train on.
struct Trainee {
  Trainee(Backend& device, const ModelConfig& config, std::int64_t batch, std::int64_t sequence,
          DType storage, const std::string& recipe_name = "bf16")
      : decoder(device, config, batch, sequence, storage),
        recipe(recipe_of(recipe_name, config)),
        tokens(some_tokens(batch * sequence, config.vocab, 1)),
        targets(some_tokens(batch * sequence, config.vocab, 2)),
        losses(tokens.size()) {
    decoder.initialize(7);
    // Norms are 1 and biases 0 at first: that would hide a missing factor. And time steps of a thousandth
    // would hide the scan.
    unsigned seed = 100;
    for (const auto& parameter : decoder.parameters()) {
      const std::vector<double> noise = random_values(parameter->value.size(), seed++, 0.1);
      const float shift = parameter->name.ends_with("dt_bias") ? 3.0f : 0.0f;
      for (std::size_t i = 0; i < noise.size(); ++i)
        parameter->value.f32()[i] += static_cast<float>(noise[i]) + shift;
    }
    decoder.weights_changed();
  }

  Pass pass() const {
    Pass result;
    result.recipe = &recipe;
    result.seed = 5;
    return result;
  }
  void train(float gradient_scale = 1) {
    Pass p = pass();
    decoder.clear_gradients();
    decoder.train(p, tokens, targets, gradient_scale, losses);
  }
  double loss() {
    Pass p = pass();
    decoder.evaluate(p, tokens, targets, losses);
    return std::accumulate(losses.begin(), losses.end(), 0.0);
  }
  std::map<std::string, std::vector<float>> gradients() {
    std::map<std::string, std::vector<float>> result;
    for (const auto& parameter : decoder.parameters()) {
      const float* data = parameter->gradient.f32();
      result[parameter->name] = {data, data + parameter->gradient.size()};
    }
    return result;
  }

  Decoder decoder;
  Recipe recipe;
  Tokens tokens, targets;
  std::vector<float> losses;
};

struct Family {
  std::string name;
  ModelConfig config;
};

// NOLINTNEXTLINE(readability-identifier-naming): the name is GoogleTest's
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

class DecoderFamilies : public ::testing::TestWithParam<std::tuple<std::string, Family>> {
 protected:
  Backend& device() { return backend(std::get<0>(GetParam())); }
  const ModelConfig& config() { return std::get<1>(GetParam()).config; }
};

double norm_of(const std::vector<double>& x) { return std::sqrt(dot(x, x)); }

/// The derivative of the loss along a direction of length 1 in one parameter, by differences of fourth order.
double derivative(Trainee& trainee, Parameter& parameter, const std::vector<double>& direction, double step) {
  const std::vector<float> start(parameter.value.f32(), parameter.value.f32() + parameter.value.size());
  const auto loss_at = [&](double distance) {
    for (std::size_t i = 0; i < start.size(); ++i)
      parameter.value.f32()[i] = static_cast<float>(static_cast<double>(start[i]) + distance * direction[i]);
    trainee.decoder.weights_changed();
    return trainee.loss();
  };
  const double result =
      (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) / (12 * step);
  std::copy(start.begin(), start.end(), parameter.value.f32());
  trainee.decoder.weights_changed();
  return result;
}

TEST_P(DecoderFamilies, GradientsAreTheDerivativesOfTheLoss) {
  Trainee trainee(device(), config(), 2, 12, DType::f32);
  trainee.targets[5] = CrossEntropy::kIgnore;
  trainee.train();
  const auto gradients = trainee.gradients();
  unsigned seed = 1;
  for (const auto& parameter : trainee.decoder.parameters()) {
    const std::vector<double> gradient = to_f64(gradients.at(parameter->name));
    const double size = norm_of(gradient);
    ASSERT_GT(size, 1e-3) << parameter->name << " does not matter, so this tests nothing";
    std::vector<double> own = gradient;
    for (double& value : own) value /= size;
    std::vector<double> random = random_values(static_cast<std::int64_t>(gradient.size()), seed++);
    const double random_size = norm_of(random);
    for (double& value : random) value /= random_size;

    // The loss is a sum of 23 f32 losses of about 4, each off by a step or so of 2^-22: 3e-6 together, which
    // is divided by the step. The differences' own error grows with the fourth power of the step.
    constexpr double kStep = 0.01;
    const double tolerance = 2e-4 * size + 3e-6 / kStep;
    EXPECT_NEAR(derivative(trainee, *parameter, own, kStep), size, tolerance) << parameter->name;
    EXPECT_NEAR(derivative(trainee, *parameter, random, kStep), dot(gradient, random), tolerance)
        << parameter->name;
  }
}

TEST_P(DecoderFamilies, GradientScaleMultipliesAndTrainingAdds) {
  Trainee trainee(device(), config(), 1, 12, DType::f32);
  trainee.train(1);
  const auto once = trainee.gradients();
  trainee.train(0.25f);
  for (const auto& [name, gradient] : trainee.gradients()) {
    std::vector<double> expected = to_f64(once.at(name));
    for (double& value : expected) value /= 4;
    EXPECT_LT(relative_error(gradient, expected), 1e-5) << name;
  }
  trainee.train(1);
  Pass pass = trainee.pass();
  trainee.decoder.train(pass, trainee.tokens, trainee.targets, 1, trainee.losses);
  for (const auto& [name, gradient] : trainee.gradients()) {
    std::vector<double> expected = to_f64(once.at(name));
    for (double& value : expected) value *= 2;
    EXPECT_LT(relative_error(gradient, expected), 1e-5) << name;
  }
}

TEST_P(DecoderFamilies, GradientsOfABatchAreTheSumOverItsSequences) {
  constexpr std::int64_t kSequence = 12;
  Trainee whole(device(), config(), 2, kSequence, DType::f32);
  whole.train();
  Trainee half(device(), config(), 1, kSequence, DType::f32);
  half.decoder.clear_gradients();
  std::vector<float> losses;
  for (std::uint32_t i = 0; i < 2; ++i) {
    Pass pass = half.pass();
    pass.microbatch = i;
    const auto part = [&](const auto& all) { return std::span(all).subspan(i * kSequence, kSequence); };
    half.decoder.train(pass, part(whole.tokens), part(whole.targets), 1, half.losses);
    losses.insert(losses.end(), half.losses.begin(), half.losses.end());
  }
  EXPECT_TRUE(close(losses, to_f64(whole.losses), 1e-6));
  const auto expected = whole.gradients();
  for (const auto& [name, gradient] : half.gradients())
    EXPECT_LT(relative_error(gradient, expected.at(name)), 2e-5) << name << ": f32 sums in another order";
}

TEST_P(DecoderFamilies, EvaluationGivesTheLossesOfTraining) {
  for (const char* recipe : {"bf16", "nvfp4"}) {
    Trainee trainee(device(), config(), 2, 16, DType::bf16, recipe);
    trainee.train();
    const std::vector<float> training = trainee.losses;
    trainee.loss();
    EXPECT_EQ(trainee.losses, training) << recipe;
  }
}

TEST_P(DecoderFamilies, EvaluationTakesFewerSequencesThanThereIsRoomFor) {
  Trainee trainee(device(), config(), 3, 16, DType::f32);
  trainee.loss();
  Pass pass = trainee.pass();
  std::vector<float> losses(32);
  trainee.decoder.evaluate(pass, std::span(trainee.tokens).first(32), std::span(trainee.targets).first(32),
                           losses);
  const std::vector<double> expected(trainee.losses.begin(), trainee.losses.begin() + 32);
  EXPECT_TRUE(close(losses, expected, 1e-6));
}

/// -log softmax(logits)[target] of each row.
std::vector<double> losses_of(const std::vector<float>& logits, const Tokens& targets) {
  const std::size_t vocab = logits.size() / targets.size();
  std::vector<double> losses;
  for (std::size_t t = 0; t < targets.size(); ++t) {
    double sum = 0;
    for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(logits[t * vocab + v]));
    losses.push_back(std::log(sum) -
                     static_cast<double>(logits[t * vocab + static_cast<std::size_t>(targets[t])]));
  }
  return losses;
}

TEST_P(DecoderFamilies, ReadingInPiecesGivesTheLogitsOfTheWholeSequence) {
  constexpr std::int64_t kLength = 24;
  Trainee trainee(device(), config(), 1, kLength, DType::f32);
  trainee.loss();
  const std::vector<double> expected = to_f64(trainee.losses);
  // The second model was built for shorter sequences than it now reads.
  Trainee reader(device(), config(), 1, 8, DType::f32);
  for (const std::vector<std::size_t>& pieces :
       {std::vector<std::size_t>{24}, std::vector<std::size_t>(24, 1),
        std::vector<std::size_t>{5, 1, 1, 9, 8}}) {
    Session session = reader.decoder.start(kLength);
    Pass pass = reader.pass();
    std::vector<float> logits;
    std::size_t at = 0;
    for (const std::size_t count : pieces) {
      const std::vector<float> part =
          reader.decoder.extend(pass, session, std::span(trainee.tokens).subspan(at, count), false);
      ASSERT_EQ(part.size(), count * static_cast<std::size_t>(config().vocab));
      logits.insert(logits.end(), part.begin(), part.end());
      at += count;
      EXPECT_EQ(session.length(), static_cast<std::int64_t>(at));
    }
    EXPECT_TRUE(close(losses_of(logits, trainee.targets), expected, DType::f32, 1e-5))
        << "in " << pieces.size() << " pieces";

    Session again = reader.decoder.start(kLength);
    const std::vector<float> last = reader.decoder.extend(pass, again, trainee.tokens, true);
    ASSERT_EQ(last.size(), static_cast<std::size_t>(config().vocab));
    const std::vector<float> end(logits.end() - config().vocab, logits.end());
    EXPECT_TRUE(close(last, to_f64(end), 1e-5));
  }
}

TEST_P(DecoderFamilies, TwoSessionsDoNotDisturbEachOther) {
  Trainee trainee(device(), config(), 1, 8, DType::f32);
  Pass pass = trainee.pass();
  const std::span<const std::int32_t> tokens = trainee.tokens;
  const std::span<const std::int32_t> others = trainee.targets;
  Session alone = trainee.decoder.start(8);
  trainee.decoder.extend(pass, alone, tokens.first(5), true);
  const std::vector<float> expected = trainee.decoder.extend(pass, alone, tokens.subspan(5, 2), false);
  Session a = trainee.decoder.start(8);
  Session b = trainee.decoder.start(8);
  trainee.decoder.extend(pass, a, tokens.first(5), true);
  trainee.decoder.extend(pass, b, others.first(6), true);
  EXPECT_EQ(trainee.decoder.extend(pass, a, tokens.subspan(5, 2), false), expected);
}

/// Logits of three sequences that are read alone and together, twice: prompts, then tokens that follow.
void expect_same_together(Trainee trainee, double tolerance) {
  Pass pass = trainee.pass();
  const std::span<const std::int32_t> tokens = trainee.tokens;
  const std::vector<bool> last_only = {true, false, true};
  const auto vocab = static_cast<std::size_t>(trainee.decoder.config().vocab);
  std::vector<Session> alone, together;
  for (std::size_t s = 0; s < 3; ++s) {
    alone.push_back(trainee.decoder.start(10));
    together.push_back(trainee.decoder.start(10));
  }
  for (const std::vector<std::size_t>& counts : {std::vector<std::size_t>{5, 1, 7}, {1, 3, 1}, {1, 1, 2}}) {
    std::vector<NewTokens> reads;
    std::vector<float> expected;
    for (std::size_t s = 0; s < 3; ++s) {
      const auto part = tokens.subspan(s + static_cast<std::size_t>(alone[s].length()), counts[s]);
      const std::vector<float> logits = trainee.decoder.extend(pass, alone[s], part, last_only[s]);
      expected.insert(expected.end(), logits.begin(), logits.end());
      reads.push_back({&together[s], part, last_only[s]});
    }
    std::vector<float> actual;
    trainee.decoder.extend(pass, reads, [&](std::int64_t row, std::span<const float> logits) {
      EXPECT_EQ(static_cast<std::size_t>(row) * vocab, actual.size());
      actual.insert(actual.end(), logits.begin(), logits.end());
    });
    ASSERT_EQ(actual.size(), (2 + counts[1]) * vocab);
    EXPECT_TRUE(close(actual, to_f64(expected), tolerance));
    for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(together[s].length(), alone[s].length());
  }
}

TEST_P(DecoderFamilies, SequencesReadTogetherAreThoseReadAlone) {
  // To the bit where each row of a product is computed alike; elsewhere an activation may round to its other
  // neighbour, which a quantizer would make more of.
  const bool is_exact = device().name() == "cpu";
  expect_same_together(Trainee(device(), config(), 1, 16, DType::f32), is_exact ? 0 : 1e-5);
  expect_same_together(Trainee(device(), config(), 1, 16, DType::bf16), is_exact ? 0 : 0.05);
  for (const char* recipe : {"fp8", "mxfp4", "nvfp4", "tetrad"}) {
    SCOPED_TRACE(recipe);
    if (is_exact) expect_same_together(Trainee(device(), config(), 1, 16, DType::bf16, recipe), 0);
  }
}

TEST_P(DecoderFamilies, KnowsTheMemoryOfASession) {
  Trainee trainee(device(), config(), 1, 16, DType::bf16);
  const ModelConfig model = config();
  std::int64_t expected = 0;
  for (const char block : model.pattern) {
    if (block == '*')
      expected += 10 * 2 * model.kv_heads * model.head_dim * 2;  // tokens, keys and values, bytes
    if (block == 'M') {
      const std::int64_t inner = model.mamba.heads * model.mamba.head_dim;
      const std::int64_t convolved = inner + 2 * model.mamba.groups * model.mamba.state;
      expected += 4 * (inner * model.mamba.state + (model.mamba.conv - 1) * convolved);
    }
  }
  EXPECT_EQ(trainee.decoder.session_bytes(10), expected);
}

TEST_P(DecoderFamilies, KnowsWhetherSequencesAreIndependent) {
  const bool stacks = device().has_stacks();  // several tensors in one product, each with its own scale
  for (const auto& [recipe, independent] :
       {std::pair("bf16", true), {"fp8", true}, {"mxfp4", true}, {"nvfp4", stacks}, {"tetrad", stacks}}) {
    Trainee trainee(device(), config(), 1, 16, DType::bf16, recipe);
    EXPECT_EQ(trainee.decoder.sequences_are_independent(trainee.pass()), independent) << recipe;
  }
}

TEST_P(DecoderFamilies, RefusesWhatDoesNotFit) {
  Trainee trainee(device(), config(), 2, 8, DType::f32);
  Pass pass = trainee.pass();
  std::vector<float> losses(16);
  const auto evaluate = [&](std::size_t tokens, std::size_t targets, std::size_t count) {
    const Tokens t(tokens), u(targets);
    std::vector<float> l(count);
    trainee.decoder.evaluate(pass, t, u, l);
  };
  EXPECT_NO_THROW(evaluate(8, 8, 8));
  EXPECT_THROW(evaluate(7, 7, 7), Error);
  EXPECT_THROW(evaluate(24, 24, 24), Error);
  EXPECT_THROW(evaluate(0, 0, 0), Error);
  EXPECT_THROW(evaluate(16, 8, 16), Error) << "fewer targets than tokens would be read past their end";
  EXPECT_THROW(evaluate(16, 16, 8), Error);
  EXPECT_THROW(trainee.decoder.train(pass, Tokens(8), Tokens(8), 1, std::span(losses).first(8)), Error);
  EXPECT_THROW(trainee.decoder.train(pass, Tokens(16), Tokens(8), 1, losses), Error);
  Tokens bad(8);
  bad[3] = static_cast<std::int32_t>(config().vocab);
  EXPECT_THROW(trainee.decoder.evaluate(pass, bad, Tokens(8), std::span(losses).first(8)), Error);
  Session session = trainee.decoder.start(4);
  EXPECT_THROW(trainee.decoder.extend(pass, session, Tokens(5), true), Error);
  EXPECT_THROW(trainee.decoder.extend(pass, session, {}, true), Error);
  EXPECT_THROW(trainee.decoder.extend(pass, std::span<const NewTokens>(), {}), Error);
}

TEST_P(DecoderFamilies, LossesAndGradientsDoNotDependOnThreads) {
  for (const char* recipe : {"bf16", "nvfp4"}) {
    SCOPED_TRACE(recipe);
    expect_same_for_any_threads(std::get<0>(GetParam()), [&](Backend& on) {
      Trainee trainee(on, config(), 4, 16, DType::bf16, recipe);
      trainee.train();
      return std::pair(trainee.gradients(), trainee.losses);
    });
  }
}

TEST_P(DecoderFamilies, EveryRecipeLearns) {
  for (const char* recipe : {"bf16", "fp8", "mxfp4", "nvfp4"}) {
    Trainee trainee(device(), config(), 2, 32, DType::bf16, recipe);
    std::vector<std::vector<float>> moments;
    std::vector<AdamWTensor> tensors;
    for (const auto& parameter : trainee.decoder.parameters()) {
      const auto size = static_cast<std::size_t>(parameter->value.size());
      moments.emplace_back(size);
      moments.emplace_back(size);
      tensors.push_back({parameter->value.f32(), parameter->gradient.f32(),
                         moments[moments.size() - 2].data(), moments.back().data(), parameter->value.size(),
                         parameter->decay});
    }
    const double before = trainee.loss();
    for (std::uint32_t step = 1; step <= 12; ++step) {
      Pass pass = trainee.pass();
      pass.step = step;
      trainee.decoder.clear_gradients();
      trainee.decoder.train(pass, trainee.tokens, trainee.targets, 1.0f / 64, trainee.losses);
      ASSERT_FALSE(pass.non_finite.has_value()) << *pass.non_finite;
      AdamWStep update;
      update.tensors = tensors;
      update.step = step;
      update.learning_rate = 0.02f;
      device().adamw(update);
      trainee.decoder.weights_changed();
    }
    const double after = trainee.loss();
    EXPECT_LT(after, 0.6 * before) << recipe << ": random targets can only be learnt by heart";
  }
}

/// Gradients of a step, and the logits of a text that is read in two parts: every operation of the backend.
TEST(DecoderOnEveryInstructionSet, ComputesTheSameBits) {
  const std::vector<std::string> sets = cpu_instruction_sets().usable;
  for (const auto& [name, config] :
       {Family{"llama", tiny_llama()}, Family{"qwen3", tiny_qwen3()}, Family{"hybrid", tiny_hybrid()}})
    for (const auto& [recipe, storage] : {std::pair{"bf16", DType::f32},
                                          {"bf16", DType::bf16},
                                          {"nvfp4", DType::bf16},
                                          {"fp8", DType::bf16},
                                          {"mxfp4", DType::bf16}}) {
      SCOPED_TRACE(name + " " + recipe);
      std::map<std::string, std::vector<float>> expected_gradients;
      std::vector<float> expected_logits;
      for (const std::string& set : sets) {
        SCOPED_TRACE(set);
        const std::unique_ptr<Backend> device = make_cpu_backend({.threads = 2, .instruction_set = set});
        Trainee trainee(*device, config, 2, 48, storage, recipe);
        trainee.train();
        Pass pass = trainee.pass();
        Session session = trainee.decoder.start(12);
        trainee.decoder.extend(pass, session, std::span(trainee.tokens).first(9), true);
        const std::vector<float> logits =
            trainee.decoder.extend(pass, session, std::span(trainee.tokens).subspan(9, 1), true);
        if (set == sets.front()) {
          expected_gradients = trainee.gradients();
          expected_logits = logits;
        }
        EXPECT_EQ(trainee.gradients(), expected_gradients);
        EXPECT_EQ(logits, expected_logits);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, DecoderFamilies,
    ::testing::Combine(::testing::ValuesIn(backend_names()),
                       ::testing::Values(Family{"llama", tiny_llama()}, Family{"qwen3", tiny_qwen3()},
                                         Family{"hybrid", tiny_hybrid()})),
    [](const auto& test) { return std::get<0>(test.param) + "_" + std::get<1>(test.param).name; });

// ---------------------------------------------------------------------------------------------------------------------

class Initialization : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam()); }

  std::map<std::string, std::vector<double>> weights(const ModelConfig& config, std::uint64_t seed) {
    return weights(device(), config, seed);
  }
  std::map<std::string, std::vector<double>> weights(Backend& on, const ModelConfig& config,
                                                     std::uint64_t seed) {
    Decoder decoder(on, config, 1, 16, DType::bf16);
    decoder.initialize(seed);
    std::map<std::string, std::vector<double>> result;
    for (const auto& parameter : decoder.parameters()) {
      const float* data = parameter->value.f32();
      result[parameter->name] = {data, data + parameter->value.size()};
    }
    return result;
  }
};

TEST_P(Initialization, DependsOnSeedAndNameOnly) {
  const auto one = weights(tiny_hybrid(), 1);
  EXPECT_EQ(one, weights(tiny_hybrid(), 1));
  const auto two = weights(tiny_hybrid(), 2);
  for (const char* name : {"embedding.weight", "blocks.0.in.weight", "blocks.1.up.weight", "head.weight",
                           "blocks.0.conv.weight", "blocks.0.a_log", "blocks.0.dt_bias"})
    EXPECT_NE(one.at(name), two.at(name)) << name;
  EXPECT_NE(one.at("embedding.weight"), one.at("head.weight"));
  EXPECT_NE(one.at("blocks.1.up.weight"), one.at("blocks.3.up.weight"));
  const auto high_bits = weights(tiny_hybrid(), 1 + (1ull << 32));
  EXPECT_NE(one.at("head.weight"), high_bits.at("head.weight")) << "all 64 bits of the seed count";

  ModelConfig other = tiny_hybrid();  // other blocks before it, and another batch of blocks after
  other.pattern = "*-M-";
  EXPECT_EQ(weights(other, 1).at("blocks.1.up.weight"), one.at("blocks.1.up.weight"));
  expect_same_for_any_threads(GetParam(), [&](Backend& on) { return weights(on, tiny_hybrid(), 3); });
}

/// Mean and deviation within 5 standard errors of those of a normal distribution.
void expect_normal(const std::vector<double>& values, double deviation, const std::string& what) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  double fourth = 0;
  for (const double value : values) {
    squares += value * value;
    fourth += std::pow(value / deviation, 4);
  }
  EXPECT_NEAR(mean, 0, 5 * deviation / std::sqrt(count)) << what;
  EXPECT_NEAR(std::sqrt(squares / count), deviation, 5 * deviation / std::sqrt(2 * count)) << what;
  EXPECT_NEAR(fourth / count, 3, 5 * std::sqrt(96 / count)) << what << ": the tails of a normal distribution";
}

TEST_P(Initialization, HasTheDocumentedDistributions) {
  ModelConfig config = tiny_hybrid();
  config.init_std = 0.02f;
  config.pattern = "M-*-M-*-M";  // 9 blocks: what writes to the residual stream is divided by 3
  const auto all = weights(config, 11);
  for (const char* name :
       {"embedding.weight", "head.weight", "blocks.0.in.weight", "blocks.1.up.weight", "blocks.2.qkv.weight"})
    expect_normal(all.at(name), 0.02, name);
  for (const char* name : {"blocks.0.out.weight", "blocks.1.down.weight", "blocks.2.out.weight"})
    expect_normal(all.at(name), 0.02 / 3, name);
  const auto within = [&](const char* name, double low, double high, const auto& map) {
    std::vector<double> values;
    for (const char block : {'0', '4', '8'}) {
      const auto& part = all.at(std::string("blocks.") + block + "." + name);
      values.insert(values.end(), part.begin(), part.end());
    }
    for (double& value : values) value = map(value);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*least, low) << name;
    EXPECT_LE(*most, high) << name;
    // Uniform between the two: 48 values or more, mean within 5 standard errors
    const double mean =
        std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    const double error = (high - low) / std::sqrt(12 * static_cast<double>(values.size()));
    EXPECT_NEAR(mean, (low + high) / 2, 5 * error) << name;
  };
  within("conv.weight", -0.5, 0.5, [](double x) { return x; });
  within("a_log", 1, 16, [](double x) { return std::exp(x); });
  const double slack = 1e-5;
  within("dt_bias", std::log(0.001) - slack, std::log(0.1) + slack,
         [](double x) { return std::log(std::log1p(std::exp(x))); });
  for (const auto& [name, values] : all) {
    const bool one = name.ends_with("norm.weight") || name.ends_with(".d");
    if (one || name.ends_with("conv.bias")) {
      EXPECT_EQ(values, std::vector<double>(values.size(), one ? 1.0 : 0.0)) << name;
    }
  }
}

TEST_P(Initialization, DecaysMatricesOnly) {
  for (const ModelConfig& config : {tiny_hybrid(), tiny_qwen3()}) {
    Decoder decoder(device(), config, 1, 16);
    for (const auto& parameter : decoder.parameters()) {
      const bool matrix = parameter->name.ends_with(".weight") && parameter->shape.size() == 2 &&
                          !parameter->name.ends_with("conv.weight");
      EXPECT_EQ(parameter->decay, matrix) << parameter->name;
    }
    std::int64_t total = 0;
    for (const auto& parameter : decoder.parameters()) total += parameter->value.size();
    EXPECT_EQ(total, parameter_count(config));
  }
}

/// The weights of the same model without them, and ones.
TEST_P(Initialization, NormsOfHeadsBeginWithOnesAndChangeNothingElse) {
  const auto plain = weights(tiny_llama(), 1);
  const auto normed = weights(tiny_qwen3(), 1);
  EXPECT_EQ(normed.size(), plain.size() + 4);
  for (const auto& [name, values] : normed) {
    const auto found = plain.find(name);
    EXPECT_EQ(values, found == plain.end() ? std::vector<double>(8, 1.0) : found->second) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Initialization, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::decoder_test
