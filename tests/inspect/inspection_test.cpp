// SPDX-License-Identifier: Apache-2.0
// A model with one layer that four bits cannot hold: the inspection must find it, and find it again.

#include <gtest/gtest.h>

#include <random>

#include "support/cpu.h"
#include "support/errors.h"
#include "support/matrices.h"
#include "support/models.h"
#include "tetrad/core/threads.h"
#include "tetrad/inspect/inspection.h"
#include "tetrad/parallel/self_communicator.h"

namespace tetrad::testing {
namespace {

constexpr std::int64_t kSequences = 2;
constexpr std::int64_t kLength = 32;
constexpr const char* kBadLayer = "blocks.1.down";

/// With the tiny model's large weights, any error anywhere makes all gradients very different.
ModelConfig calm_llama() {
  ModelConfig config = tiny_llama();
  config.init_std = 0.08f;
  return config;
}

ProbeData random_data(std::int64_t vocab, std::size_t batches, bool heldout) {
  std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same in every run
  const auto make = [&] {
    Microbatch batch;
    for (std::int64_t i = 0; i < kSequences * kLength; ++i) {
      batch.inputs.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocab)));
      batch.targets.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocab)));
    }
    return batch;
  };
  ProbeData data;
  for (std::size_t i = 0; i < batches; ++i) {
    data.training.push_back(make());
    if (heldout) data.heldout.push_back(make());
  }
  return data;
}

/// An entry in every 16x16 block of the weights of kBadLayer so large that all others in it become zero. What
/// it is multiplied with is made as much smaller, so that the model computes as well as before.
void plant_outliers(Decoder& decoder) {
  constexpr float kFactor = 25;
  const std::int64_t ffn = decoder.config().ffn;
  for (const auto& parameter : decoder.parameters()) {
    const auto row = [&](std::int64_t index) {
      return std::span(parameter->value.f32() + index * parameter->value.cols(),
                       static_cast<std::size_t>(parameter->value.cols()));
    };
    for (std::int64_t channel = 0; channel < ffn; channel += 16) {
      if (parameter->name == "blocks.1.down.weight")
        for (std::int64_t i = 0; i < parameter->value.rows(); i += 16)
          row(i)[static_cast<std::size_t>(channel)] = kFactor * decoder.config().init_std;
      if (parameter->name == "blocks.1.up.weight")  // gates, then what they let through
        for (float& value : row(ffn + channel)) value /= kFactor;
    }
  }
  decoder.weights_changed();
}

class InspectionTest : public ::testing::Test {
 protected:
  InspectionTest() {
    precision_.recipe = "nvfp4";
    pass_.seed = 1;
    pass_.progress = 0.5;
  }

  Inspection inspected(const InspectOptions& options = {.budget = 0.2, .progress = {}}) {
    return inspect(alone_, decoder_, precision_, data_, pass_, options);
  }

  static Decoder make_decoder(int threads) {
    Decoder decoder(cpu_backend(threads), calm_llama(), kSequences, kLength);
    decoder.initialize(3);
    return decoder;
  }

  SelfCommunicator alone_;
  Decoder decoder_ = make_decoder(1);
  PrecisionConfig precision_;
  ProbeData data_ = random_data(tiny_llama().vocab, 2, false);
  Pass pass_;
};

const UnitReport& unit(const Inspection& inspection, std::string_view name) {
  for (const UnitReport& report : inspection.units)
    if (report.unit.name == name) return report;
  throw std::runtime_error("no unit " + std::string(name));
}

TEST_F(InspectionTest, FindsTheLayerThatFourBitsCannotHold) {
  plant_outliers(decoder_);
  data_ = random_data(tiny_llama().vocab, 4, true);
  const Inspection inspection = inspected();
  EXPECT_EQ(inspection.worst[0].stats.layer, kBadLayer);
  EXPECT_EQ(inspection.worst[0].stats.operand, Operand::fprop_w);
  EXPECT_GT(inspection.worst[0].stats.stats.flushed_fraction(), 0.9);
  EXPECT_EQ(inspection.worst[0].stats.stats.measured, decoder_.config().hidden * decoder_.config().ffn);
  EXPECT_EQ(inspection.worst.size(), inspection.layers.size() * kOperands);

  const UnitReport& bad = unit(inspection, kBadLayer);
  for (const UnitReport& report : inspection.units)
    EXPECT_LE(report.bf16.gradient_error.mean, bad.bf16.gradient_error.mean) << report.unit.name;
  EXPECT_TRUE(bad.bf16.gradient_error.is_above_noise());
  EXPECT_TRUE(bad.fp8->gradient_error.is_above_noise());
  EXPECT_NE(bad.suggested, Level::quantized);
  EXPECT_EQ(inspection.verdict, Advice::better);

  // The set was measured as a whole: it has less error than nothing, and no more cost than was allowed.
  EXPECT_LT(inspection.suggested.gradient_error.mean, inspection.nothing.gradient_error.mean);
  EXPECT_LE(inspection.suggested.cost(), 0.2 + 1e-9);
  EXPECT_GT(inspection.suggested.weight_bytes, inspection.nothing.weight_bytes);
}

TEST_F(InspectionTest, Fp8LiesBetweenTheRecipeAndBf16) {
  plant_outliers(decoder_);
  precision_.high_precision = {0, 0, {}, {}};
  const ProbeSetup setup{alone_, decoder_, data_, pass_, {}};
  const auto recipe = [&](const std::string& name, const HighPrecisionConfig& kept) {
    PrecisionConfig config;
    config.recipe = name;
    config.high_precision = kept;
    return Recipe(config, decoder_.config().blocks());
  };
  const Recipe reference = recipe("bf16", {});
  const std::vector<Recipe> recipes = {recipe("nvfp4", {0, 0, {}, {}}), recipe("nvfp4", {0, 0, {}, {"*"}}),
                                       recipe("nvfp4", {0, 0, {"*"}, {}})};
  const ProbeResults results = probe(setup, reference, recipes);
  for (std::size_t i = 0; i < data_.training.size(); ++i) {
    const auto sample = [&](std::size_t index) { return results.recipes[index].samples[i]; };
    EXPECT_LT(sample(1).gradient_error, sample(0).gradient_error);
    EXPECT_GT(sample(1).gradient_error, 0);
    EXPECT_LT(sample(0).cosine, sample(1).cosine);
    EXPECT_EQ(sample(2).gradient_error, 0) << "everything kept is the reference, to the bit";
  }
  EXPECT_EQ(results.reference_losses.size(), data_.training.size() * kSequences);
  EXPECT_EQ(results.recipes[2].losses, results.reference_losses);
  EXPECT_NE(results.recipes[0].losses, results.reference_losses);
}

TEST_F(InspectionTest, LayersThatAreKeptTodayAreReportedBothWays) {
  precision_.high_precision = {1, 0, {}, {"blocks.3.*"}};
  const Inspection inspection = inspected();
  for (const UnitReport& report : inspection.units) {
    const Level expected = report.unit.block == 0   ? Level::bf16
                           : report.unit.block == 3 ? Level::fp8
                                                    : Level::quantized;
    EXPECT_EQ(report.now, expected) << report.unit.name;
    EXPECT_EQ(report.in_todays_set.has_value(), expected != Level::quantized) << report.unit.name;
  }
  EXPECT_GT(unit(inspection, "blocks.0.qkv").in_todays_set->gradient_error.mean, 0);
  EXPECT_LT(inspection.today.gradient_error.mean, inspection.nothing.gradient_error.mean);
  const double block0 =
      unit(inspection, "blocks.0.qkv").unit.share + unit(inspection, "blocks.0.out").unit.share;
  EXPECT_NEAR(inspection.today.bf16_share, block0, 1e-12);
  // Bytes for a weight: NVFP4 has half of one and a sixteenth for the scale.
  const UnitReport& up = unit(inspection, "blocks.1.up");
  EXPECT_NEAR(up.bf16_bytes, static_cast<double>(up.unit.weights) * (2 - 0.5625), 1e-9);
  EXPECT_NEAR(up.fp8_bytes, static_cast<double>(up.unit.weights) * (1 + 4.0 / (128 * 128) - 0.5625), 1e-9);
}

TEST_F(InspectionTest, TheSameInputsGiveTheSameFiguresWithAnyThreads) {
  const auto figures = [&](int threads) {
    Decoder decoder = make_decoder(threads);
    const Inspection inspection =
        inspect(alone_, decoder, precision_, data_, pass_, {.by_block = true, .progress = {}});
    std::vector<double> all = {inspection.reference_loss, inspection.suggested.gradient_error.mean};
    for (const UnitReport& report : inspection.units)
      for (const Gain& gain : {report.bf16, *report.fp8})
        all.insert(all.end(), {gain.gradient_error.mean, gain.gradient_error.error, gain.loss.mean});
    for (const OperandReport& report : inspection.worst) all.push_back(report.stats.stats.noise);
    return all;
  };
  data_ = random_data(tiny_llama().vocab, 2, true);
  const std::vector<double> once = figures(1);
  EXPECT_EQ(once.size(), 2 + 4 * 6 + 8 * kOperands);
  EXPECT_EQ(figures(1), once);
  EXPECT_EQ(figures(2), once);
}

TEST_F(InspectionTest, ProgressCountsEveryPass) {
  std::int64_t calls = 0;
  std::int64_t last = 0;
  inspected({.by_block = true, .progress = [&](std::int64_t done, std::int64_t total) {
               EXPECT_EQ(done, ++calls);
               last = total;
             }});
  EXPECT_EQ(calls, last);
}

TEST_F(InspectionTest, Bf16HasNothingToInspect) {
  precision_.recipe = "bf16";
  expect_bad_input([&] { inspected(); }, {"nothing to inspect", "--precision"});
  precision_.recipe = "nvfp4";
  precision_.schedule = {{0.4, "bf16", "bf16"}};
  expect_bad_input([&] { inspected(); }, {"nothing to inspect", "50 %"});
  // FP8 cannot be kept in FP8.
  precision_.schedule.clear();
  precision_.recipe = "fp8";
  for (const UnitReport& report : inspected({.by_block = true, .progress = {}}).units)
    EXPECT_FALSE(report.fp8.has_value());
}

}  // namespace
}  // namespace tetrad::testing
