// SPDX-License-Identifier: Apache-2.0
// Computing again in the backward pass, and whatever else saves memory, changes memory and nothing else:
// losses, gradients, statistics and notes are the same to the bit.

#include "tetrad/model/recompute.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "support/backends.h"
#include "support/matrices.h"
#include "support/models.h"
#include "support/on_device.h"
#include "tetrad/core/error.h"
#include "tetrad/model/decoder.h"

namespace tetrad::testing::recompute_test {
namespace {

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kSequence = 16;
constexpr std::int64_t kTokens = kBatch * kSequence;

/// With a block before and one after another of its kind.
ModelConfig longer_hybrid() {
  ModelConfig config = tiny_hybrid();
  config.pattern = "M-*-M-";
  return config;
}

/// What two steps of two microbatches leave behind, the precision changing between them where the recipe has
/// a schedule.
struct Result {
  std::vector<float> losses, gradients;
  std::vector<OperandStats> stats;
  std::optional<std::string> non_finite;
  std::size_t saved_bytes = 0;
  std::size_t activation_bytes = 0;
  std::size_t bytes_on_host = 0;
};

struct Setting {
  ModelConfig model;
  PrecisionConfig precision;
  DType storage = DType::bf16;
  const char* poisoned = nullptr;  //!< a parameter that gets a NaN
};

Result train(Backend& device, const Setting& setting, const MemoryLevers& levers) {
  const Recipe recipe(setting.precision, setting.model.blocks());
  Decoder decoder(device, setting.model, kBatch, kSequence, setting.storage, levers);
  decoder.initialize(7);
  for (const auto& parameter : decoder.parameters())
    if (setting.poisoned != nullptr && parameter->name == setting.poisoned)
      parameter->value.f32()[3] = std::numeric_limits<float>::quiet_NaN();
  decoder.weights_changed();
  Result result;
  std::vector<std::int32_t> tokens(kTokens);
  std::vector<std::int32_t> targets(kTokens);
  std::vector<float> losses(kTokens);
  std::mt19937 generator(3);
  std::uniform_int_distribution<std::int32_t> pick(0, static_cast<std::int32_t>(setting.model.vocab) - 1);
  const auto run = [&](std::uint32_t step, std::uint32_t microbatch) {
    for (std::int32_t& token : tokens) token = pick(generator);
    for (std::int32_t& token : targets) token = pick(generator);
    Pass pass;
    pass.recipe = &recipe;
    pass.seed = 5;
    pass.step = step;
    pass.microbatch = microbatch;
    pass.progress = step / 2.0;
    pass.telemetry = microbatch == 1;
    decoder.train(pass, tokens, targets, 0.5f, losses);
    EXPECT_FALSE(pass.again);
    result.losses.insert(result.losses.end(), losses.begin(), losses.end());
    result.stats.insert(result.stats.end(), pass.stats.begin(), pass.stats.end());
    if (pass.non_finite && !result.non_finite) result.non_finite = pass.non_finite;
    Pass evaluation = pass;  // must not disturb what follows
    evaluation.telemetry = false;
    decoder.evaluate(evaluation, std::span(tokens).first(kSequence), std::span(targets).first(kSequence),
                     std::span(losses).first(kSequence));
  };
  for (std::uint32_t step = 0; step < 2; ++step)
    for (std::uint32_t microbatch = 0; microbatch < 2; ++microbatch) run(step, microbatch);
  for (const auto& parameter : decoder.parameters()) {
    const float* data = parameter->gradient.f32();
    result.gradients.insert(result.gradients.end(), data, data + parameter->gradient.size());
  }
  result.saved_bytes = decoder.saved_bytes();
  result.activation_bytes = decoder.activation_bytes();
  result.bytes_on_host = decoder.activation_bytes_on_host();
  return result;
}

Result train(Backend& device, const Setting& setting, const RecomputePlan& recompute) {
  return train(device, setting, MemoryLevers{recompute});
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_same(const Result& actual, const Result& expected) {
  EXPECT_TRUE(same_bits(actual.losses, expected.losses));
  EXPECT_TRUE(same_bits(actual.gradients, expected.gradients));
  EXPECT_EQ(actual.non_finite, expected.non_finite);
  ASSERT_EQ(actual.stats.size(), expected.stats.size());
  for (std::size_t i = 0; i < actual.stats.size(); ++i) {
    EXPECT_EQ(actual.stats[i].layer, expected.stats[i].layer);
    EXPECT_EQ(actual.stats[i].operand, expected.stats[i].operand);
    EXPECT_EQ(actual.stats[i].stats.noise, expected.stats[i].stats.noise);
    EXPECT_EQ(actual.stats[i].stats.measured, expected.stats[i].stats.measured);
  }
}

PrecisionConfig precision(const std::string& recipe) {
  PrecisionConfig config;
  config.recipe = recipe;
  config.high_precision.first = 0;
  config.high_precision.last = 0;
  return config;
}

struct Case {
  std::string name;
  Setting setting;
};

// NOLINTNEXTLINE(readability-identifier-naming): the name is GoogleTest's
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [family, model] :
       {std::pair("llama", tiny_llama()), {"qwen3", tiny_qwen3()}, {"hybrid", longer_hybrid()}}) {
    for (const char* recipe : {"bf16", "fp8", "mxfp4", "nvfp4"})
      all.push_back({std::string(family) + "_" + recipe, {model, precision(recipe)}});
    all.push_back({std::string(family) + "_f32", {model, precision("bf16"), DType::f32}});

    PrecisionConfig mixed = precision("nvfp4");  // rounding, signs and blocks that vary, and BF16 blocks
    mixed.high_precision.last = 1;
    mixed.sr = std::vector<std::string>{"gradients", "activations", "weights"};
    mixed.rht.signs = "per-step";
    all.push_back({std::string(family) + "_mixed", {model, mixed}});

    PrecisionConfig eden = precision("tetrad");  // x is kept as fprop's codes, signs are fresh
    eden.scale.backward = "eden";
    eden.rht.size = 16;
    all.push_back({std::string(family) + "_eden", {model, eden}});

    PrecisionConfig centred = precision("nvfp4");
    centred.centre = true;
    all.push_back({std::string(family) + "_centred", {model, centred}});

    PrecisionConfig switched = precision("nvfp4");
    switched.schedule = {{.at = 0.5, .forward = "bf16", .backward = std::nullopt}};
    all.push_back({std::string(family) + "_forward_switches", {model, switched}});
    switched.schedule = {{.at = 0.5, .forward = "bf16", .backward = "bf16"}};
    all.push_back({std::string(family) + "_switches", {model, switched}});
  }
  return all;
}

class Recomputation : public ::testing::TestWithParam<std::tuple<std::string, Case>> {
 protected:
  Backend& device() { return backend(std::get<0>(GetParam())); }
  const Setting& setting() { return std::get<1>(GetParam()).setting; }
};

TEST_P(Recomputation, ChangesNoBit) {
  const Result expected = train(device(), setting(), Recompute::none);
  const double mean = std::accumulate(expected.losses.begin(), expected.losses.end(), 0.0) /
                      static_cast<double>(expected.losses.size());
  ASSERT_TRUE(std::isfinite(mean));
  for (const Recompute recompute : {Recompute::cheap, Recompute::ffn, Recompute::full}) {
    SCOPED_TRACE(static_cast<int>(recompute));
    expect_same(train(device(), setting(), recompute), expected);
  }
  for (std::size_t plan = 0; plan < kMixedPlans; ++plan) {
    const RecomputePlan mixed = mixed_recomputation(setting().model.pattern, plan);
    SCOPED_TRACE(mixed.describe(setting().model.pattern));
    expect_same(train(device(), setting(), mixed), expected);
  }
}

TEST_P(Recomputation, NorDoesAnythingElseThatSavesMemory) {
  const Result expected = train(device(), setting(), Recompute::none);
  const RecomputePlan mixed = mixed_recomputation(setting().model.pattern, 0);
  for (const MemoryLevers& levers :
       {MemoryLevers{.weights_as_codes = true}, MemoryLevers{.residual_on_host = true},
        MemoryLevers{.attention_by_parts = true}, MemoryLevers{mixed, true, true, true}}) {
    const Result actual = train(device(), setting(), levers);
    expect_same(actual, expected);
    EXPECT_EQ(actual.bytes_on_host > 0, levers.residual_on_host);
  }
}

TEST_P(Recomputation, EachStepKeepsLess) {
  const Result none = train(device(), setting(), Recompute::none);
  const Result cheap = train(device(), setting(), Recompute::cheap);
  const Result ffn = train(device(), setting(), Recompute::ffn);
  const Result full = train(device(), setting(), Recompute::full);
  EXPECT_LE(cheap.saved_bytes, none.saved_bytes);
  EXPECT_LT(ffn.saved_bytes, cheap.saved_bytes);
  EXPECT_EQ(full.saved_bytes, 0u);
  EXPECT_LT(full.activation_bytes, none.activation_bytes);
}

INSTANTIATE_TEST_SUITE_P(All, Recomputation,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::ValuesIn(cases())),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
                         });

class RecomputationOnABackend : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam()); }
};

TEST_P(RecomputationOnABackend, CheapDropsWhatPassesOverMemoryGiveAgain) {
  constexpr std::size_t kElement = 2;
  const Setting llama_bf16{tiny_llama(), precision("bf16")};
  const std::size_t none = train(device(), llama_bf16, Recompute::none).saved_bytes;
  const std::size_t cheap = train(device(), llama_bf16, Recompute::cheap).saved_bytes;
  EXPECT_EQ(none - cheap, kElement * kTokens * (4 * 32 + 2 * 48)) << "four norms, two activations";
  const std::size_t ffn = train(device(), llama_bf16, Recompute::ffn).saved_bytes;
  EXPECT_EQ(cheap - ffn, kElement * kTokens * 2 * (2 * 48)) << "gate and up";

  const Setting llama_nvfp4{tiny_llama(), precision("nvfp4")};
  EXPECT_EQ(train(device(), llama_nvfp4, Recompute::none).saved_bytes,
            train(device(), llama_nvfp4, Recompute::cheap).saved_bytes)
      << "codes are kept: there is nothing to compute again";

  const Setting qwen3_nvfp4{tiny_qwen3(), precision("nvfp4")};
  EXPECT_EQ(train(device(), qwen3_nvfp4, Recompute::none).saved_bytes -
                train(device(), qwen3_nvfp4, Recompute::cheap).saved_bytes,
            kElement * kTokens * 2 * (4 + 2) * 8)
      << "queries and keys of two blocks, normed and rotated";
  EXPECT_EQ(train(device(), qwen3_nvfp4, Recompute::cheap).saved_bytes,
            train(device(), llama_nvfp4, Recompute::cheap).saved_bytes);

  const Setting hybrid_nvfp4{longer_hybrid(), precision("nvfp4")};
  EXPECT_EQ(train(device(), hybrid_nvfp4, Recompute::none).saved_bytes -
                train(device(), hybrid_nvfp4, Recompute::cheap).saved_bytes,
            kElement * kTokens * 2 * (16 * 4 + 2 * 2 * 4))
      << "two convolutions";
}

TEST_P(RecomputationOnABackend, MemoryOfAPrecisionThatEndedIsGivenBack) {
  Setting switched{tiny_llama(), precision("nvfp4")};
  switched.precision.schedule = {{.at = 0.5, .forward = "bf16", .backward = "bf16"}};
  EXPECT_EQ(train(device(), switched, Recompute::none).saved_bytes,
            train(device(), {tiny_llama(), precision("bf16")}, Recompute::none).saved_bytes);
}

TEST_P(RecomputationOnABackend, TheFirstValueThatIsNotFiniteIsNamedTheSame) {
  const Setting poisoned{tiny_llama(), precision("nvfp4"), DType::bf16, "blocks.1.norm.weight"};
  const Result expected = train(device(), poisoned, Recompute::none);
  ASSERT_EQ(expected.non_finite, "blocks.1.up fprop.x");
  for (const Recompute recompute : {Recompute::cheap, Recompute::ffn, Recompute::full})
    EXPECT_EQ(train(device(), poisoned, recompute).non_finite, expected.non_finite);
}

INSTANTIATE_TEST_SUITE_P(All, RecomputationOnABackend, ::testing::ValuesIn(backend_names()),
                         BackendTestName());

/// Copies that happen when they are waited for, and not before.
TEST(ResidualStream, IsReadAfterItCameBackAndWrittenAfterItWent) {
  OnDevice late(cpu_backend());
  for (const ModelConfig& model : {tiny_llama(), longer_hybrid()}) {
    const Setting setting{model, precision("bf16")};
    expect_same(train(late, setting, MemoryLevers{.residual_on_host = true}),
                train(cpu_backend(), setting, Recompute::none));
  }
}

TEST(ResidualStream, LeavesThreeMatricesOnTheDevice) {
  const Setting setting{longer_hybrid(), precision("bf16")};
  const Result resident = train(cpu_backend(), setting, Recompute::none);
  const Result moved = train(cpu_backend(), setting, MemoryLevers{.residual_on_host = true});
  const std::size_t matrix = 2 * kTokens * static_cast<std::size_t>(setting.model.hidden);
  EXPECT_EQ(moved.bytes_on_host, 4 * matrix) << "of seven";
  EXPECT_EQ(resident.activation_bytes - moved.activation_bytes, moved.bytes_on_host);
  EXPECT_EQ(resident.bytes_on_host, 0u);
}

TEST(ResidualStream, OfAShortModelStaysOnTheDevice) {
  Setting setting{tiny_llama(), precision("bf16")};
  setting.model.pattern = "*-";
  const Result result = train(cpu_backend(), setting, MemoryLevers{.residual_on_host = true});
  EXPECT_EQ(result.bytes_on_host, 0u);
  expect_same(result, train(cpu_backend(), setting, Recompute::none));
}

TEST(Recompute, IsReadFromItsName) {
  for (const char* name : {"none", "cheap", "ffn", "full"})
    EXPECT_EQ(name_of(recompute_from_name(name)), name);
  EXPECT_EQ(recompute_from_name("ffn"), Recompute::ffn);
  EXPECT_THROW(recompute_from_name("some"), Error);
}

TEST(RecomputePlan, IsAsLettersSayOrBlockByBlock) {
  const RecomputePlan ffn = Recompute::ffn;
  EXPECT_EQ(ffn.of(0, '*'), Keep::products);
  EXPECT_EQ(ffn.of(7, '-'), Keep::nothing);
  EXPECT_EQ(ffn.describe("*-*-"), "ffn");
  const RecomputePlan mixed(std::vector{Keep::nothing, Keep::all, Keep::nothing, Keep::products, Keep::all});
  EXPECT_EQ(mixed.of(1, '-'), Keep::all);
  EXPECT_EQ(mixed.of(3, '*'), Keep::products);
  EXPECT_EQ(mixed.describe("M-M*-"), "cheap in 1 of 1 attention blocks, full in 2 of 2 Mamba-2 blocks");
  EXPECT_EQ(RecomputePlan(std::vector(2, Keep::all)).describe("*-"), "none");
  EXPECT_EQ(RecomputePlan(std::vector(2, Keep::nothing)).describe("*-"), "full");
}

}  // namespace
}  // namespace tetrad::testing::recompute_test
