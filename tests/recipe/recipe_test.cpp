// SPDX-License-Identifier: Apache-2.0
// Recipes are tables: the published ones operand by operand, and every switch that changes them.

#include "tetrad/recipe/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "support/errors.h"

namespace tetrad::testing {
namespace {

bool same(const QuantSpec& a, const QuantSpec& b) {
  return a.format == b.format && a.block == b.block && a.axis == b.axis && a.rounding == b.rounding &&
         a.hadamard == b.hadamard && a.signs == b.signs && a.scaling == b.scaling;
}

constexpr std::int64_t kBlocks = 20;
constexpr std::array kAll = {Operand::fprop_x, Operand::fprop_w,  Operand::dgrad_dy,
                             Operand::dgrad_w, Operand::wgrad_dy, Operand::wgrad_x};

PrecisionConfig config_of(std::string recipe) {
  PrecisionConfig config;
  config.recipe = std::move(recipe);
  return config;
}

/// Precision of a layer in the middle, which no recipe keeps in BF16.
LinearPrecision middle(const PrecisionConfig& config, double progress = 0) {
  return Recipe(config, kBlocks).at({"blocks.10.up", 10}, progress);
}

using Expected = std::array<QuantSpec, kOperands>;

void expect_table(const LinearPrecision& got, const Expected& expected) {
  for (const Operand operand : kAll) {
    const QuantSpec& want = expected[static_cast<std::size_t>(operand)];
    ASSERT_TRUE(got[operand].has_value()) << name_of(operand);
    EXPECT_TRUE(same(*got[operand], want))
        << name_of(operand) << ": " << describe(*got[operand]) << " instead of " << describe(want);
  }
}

/// docs/numerics.md: which operand gets what.
Expected nvfp4_table() {
  constexpr BlockShape k1x16{1, 16};
  constexpr BlockShape k16x16{16, 16};
  constexpr auto kSr = Rounding::stochastic;
  return {QuantSpec{.format = Format::nvfp4, .block = k1x16, .axis = 1},
          QuantSpec{.format = Format::nvfp4, .block = k16x16, .axis = 1},
          QuantSpec{.format = Format::nvfp4, .block = k1x16, .axis = 1, .rounding = kSr},
          QuantSpec{.format = Format::nvfp4, .block = k16x16, .axis = 0},
          QuantSpec{.format = Format::nvfp4, .block = k1x16, .axis = 0, .rounding = kSr, .hadamard = 16},
          QuantSpec{.format = Format::nvfp4, .block = k1x16, .axis = 0, .hadamard = 16}};
}

TEST(RecipeTables, Nvfp4) {
  expect_table(middle(config_of("nvfp4")), nvfp4_table());
  EXPECT_TRUE(middle(config_of("nvfp4")).weight_codes_shared());
  EXPECT_EQ(middle(config_of("nvfp4")).signs, SignSource::spec);
}

TEST(RecipeTables, Mxfp4IsTheNvfp4RecipeWithItsOwnBlocksAndTransform) {
  Expected expected = nvfp4_table();
  for (QuantSpec& spec : expected) {
    spec.format = Format::mxfp4;
    spec.block = {1, 32};
    spec.scaling = Scaling::up;
    if (spec.hadamard > 0) spec.hadamard = 32;
  }
  expect_table(middle(config_of("mxfp4")), expected);
  EXPECT_FALSE(middle(config_of("mxfp4")).weight_codes_shared()) << "1x32 blocks differ the other way round";
}

TEST(RecipeTables, TetradSearchesTheScalesOfTheForwardPassAndHasRowsOfWeights) {
  Expected expected = nvfp4_table();
  for (QuantSpec& spec : expected) spec.block = {1, 16};
  expected[0].scaling = expected[1].scaling = Scaling::search;
  expect_table(middle(config_of("tetrad")), expected);
  EXPECT_FALSE(middle(config_of("tetrad")).weight_codes_shared());
}

TEST(RecipeTables, Fp8) {
  Expected expected = nvfp4_table();
  for (QuantSpec& spec : expected) {
    spec.format = Format::fp8;
    spec.block = spec.block.rows == 16 ? BlockShape{128, 128} : BlockShape{1, 128};
    spec.rounding = Rounding::nearest;
    spec.hadamard = 0;
  }
  expect_table(middle(config_of("fp8")), expected);
  EXPECT_TRUE(middle(config_of("fp8")).weight_codes_shared());
}

TEST(RecipeTables, Bf16QuantizesNothing) {
  for (const Operand operand : kAll) EXPECT_FALSE(middle(config_of("bf16"))[operand].has_value());
  EXPECT_FALSE(middle(config_of("bf16")).weight_codes_shared());
}

TEST(RecipeTables, NamesOfOperands) {
  std::vector<std::string_view> names;
  for (const Operand operand : kAll) names.push_back(name_of(operand));
  EXPECT_EQ(names, (std::vector<std::string_view>{"fprop.x", "fprop.w", "dgrad.dy", "dgrad.w", "wgrad.dy",
                                                  "wgrad.x"}));
}

// ---------------------------------------------------------------------------------------------------------------------

TEST(RecipeSwitches, HadamardGemmsAndSize) {
  PrecisionConfig config = config_of("nvfp4");
  const auto sizes = [&] {
    std::vector<int> result;
    for (const auto& spec : middle(config).operands) result.push_back(spec->hadamard);
    return result;
  };
  config.rht.gemms = std::vector<std::string>{};
  EXPECT_EQ(sizes(), (std::vector<int>{0, 0, 0, 0, 0, 0}));
  config.rht.gemms = {"fprop"};
  EXPECT_EQ(sizes(), (std::vector<int>{16, 16, 0, 0, 0, 0}));
  config.rht.gemms = {"dgrad", "wgrad"};
  config.rht.size = 64;
  EXPECT_EQ(sizes(), (std::vector<int>{0, 0, 64, 64, 64, 64}));
  EXPECT_TRUE(middle(config)[Operand::fprop_w]->block == (BlockShape{16, 16}));
  EXPECT_FALSE(middle(config).weight_codes_shared()) << "dgrad's weight is transformed, fprop's is not";
  config.rht.gemms.reset();
  config.rht.size = 128;
  EXPECT_EQ(sizes(), (std::vector<int>{0, 0, 0, 0, 128, 128}));
  config = config_of("fp8");
  EXPECT_EQ(sizes(), (std::vector<int>{0, 0, 0, 0, 0, 0}));
  config.rht.gemms = {"wgrad"};
  EXPECT_EQ(sizes(), (std::vector<int>{0, 0, 0, 0, 16, 16}));
}

/// The scaling of each operand: s(tandard), 4 (4/6), (s)e(arch), u(p), (e)d(en).
std::string scalings(const PrecisionConfig& config) {
  std::string result;
  for (const auto& spec : middle(config).operands) result += "s4eud"[static_cast<std::size_t>(spec->scaling)];
  return result;
}

TEST(RecipeSwitches, Signs) {
  PrecisionConfig config = config_of("nvfp4");
  EXPECT_EQ(middle(config)[Operand::wgrad_x]->signs, kFixedSigns);
  config.rht.signs = "none";
  for (const auto& spec : middle(config).operands) EXPECT_EQ(spec->signs, kNoSigns);
  config.rht.signs = "per-step";
  EXPECT_EQ(middle(config).signs, SignSource::per_step);
  config.rht.signs = "fresh";
  EXPECT_EQ(middle(config).signs, SignSource::fresh);
}

TEST(RecipeSwitches, EdenBringsWhatItNeeds) {
  const auto corrected = [](int axis) {
    return QuantSpec{.axis = axis, .hadamard = 128, .scaling = Scaling::eden};
  };
  for (const char* recipe : {"nvfp4", "tetrad"}) {
    PrecisionConfig config = config_of(recipe);
    const LinearPrecision usual = middle(config);
    config.scale.backward = "eden";
    const LinearPrecision precision = middle(config);
    expect_table(precision, {*usual[Operand::fprop_x], *usual[Operand::fprop_w], corrected(1), corrected(0),
                             corrected(0), corrected(0)});
    EXPECT_EQ(precision.signs, SignSource::fresh);
    EXPECT_TRUE(precision.dgrad_requantizes() && precision.wgrad_requantizes());
    EXPECT_EQ(precision.saved_operand(), Operand::fprop_x);
  }
  EXPECT_EQ(
      describe(middle([] {
                 PrecisionConfig config = config_of("tetrad");
                 config.scale.backward = "eden";
                 return config;
               }()),
               "bf16"),
      "fprop x nvfp4 1x16, nearest, scale search · w nvfp4 1x16, nearest, scale search | dgrad dy nvfp4 "
      "1x16, nearest, hadamard 128, scale eden · w of fprop, nvfp4 1x16, axis 0, nearest, hadamard 128, "
      "scale eden, fresh signs | wgrad dy nvfp4 1x16, axis 0, nearest, hadamard 128, scale eden · x of "
      "fprop, nvfp4 1x16, axis 0, nearest, hadamard 128, scale eden, fresh signs");
}

TEST(RecipeSwitches, EdensTransformsAreAsLargeAsALayerAllows) {
  PrecisionConfig config = config_of("nvfp4");
  const auto sizes = [&](std::int64_t outputs) {
    const LinearPrecision precision = Recipe(config, kBlocks).at({"blocks.10.in", 10, outputs}, 0);
    std::vector<int> result;
    for (const auto& spec : precision.operands) result.push_back(spec->hadamard);
    return result;
  };
  EXPECT_EQ(sizes(10304), (std::vector<int>{0, 0, 0, 0, 16, 16}));
  config.scale.backward = "eden";
  EXPECT_EQ(sizes(0), (std::vector<int>{0, 0, 128, 128, 128, 128}));
  EXPECT_EQ(sizes(4096), (std::vector<int>{0, 0, 128, 128, 128, 128}));
  EXPECT_EQ(sizes(10304), (std::vector<int>{0, 0, 64, 64, 128, 128}));
  EXPECT_EQ(sizes(656), (std::vector<int>{0, 0, 16, 16, 128, 128}));
  config.rht.size = 128;
  EXPECT_EQ(sizes(656), (std::vector<int>{0, 0, 128, 128, 128, 128})) << "to be refused by name";
}

TEST(RecipeSwitches, EdenTakesWhatIsSaid) {
  PrecisionConfig config = config_of("nvfp4");
  config.scale.backward = "eden";
  config.rht.size = 32;
  config.rht.signs = "per-step";
  config.source = "input";
  const LinearPrecision precision = middle(config);
  for (const Operand operand : {Operand::dgrad_dy, Operand::dgrad_w, Operand::wgrad_dy, Operand::wgrad_x})
    EXPECT_EQ(precision[operand]->hadamard, 32);
  EXPECT_EQ(precision.signs, SignSource::per_step);
  EXPECT_FALSE(precision.dgrad_requantizes() || precision.wgrad_requantizes());
  config.recipe = "mxfp4";
  EXPECT_EQ(scalings(config), "uuuuuu") << "eden is for NVFP4";
  EXPECT_EQ(middle(config)[Operand::dgrad_dy]->rounding, Rounding::stochastic);
}

TEST(RecipeSwitches, CentringIsForQuantizedInputs) {
  PrecisionConfig config = config_of("nvfp4");
  EXPECT_FALSE(middle(config).centres());
  config.centre = true;
  EXPECT_TRUE(middle(config).centres());
  EXPECT_FALSE(middle(config).uses_amax_of_x(true));
  EXPECT_TRUE(describe(middle(config), "bf16").starts_with("fprop x nvfp4 1x16, nearest, centred · w nvfp4"));
  EXPECT_FALSE(Recipe(config, kBlocks).at({"blocks.19.up", 19}, 0).centres()) << "which stays in BF16";
  config.high_precision.fp8 = {"blocks.10.*"};
  EXPECT_FALSE(middle(config).centres()) << "layers in FP8 are as the fp8 recipe has them";
}

TEST(RecipeSwitches, SourceOfWeightsAndInputs) {
  PrecisionConfig config = config_of("nvfp4");
  EXPECT_FALSE(middle(config).wgrad_requantizes());
  config.source = "fprop";
  EXPECT_TRUE(middle(config).wgrad_requantizes());
  EXPECT_FALSE(middle(config).dgrad_requantizes()) << "square blocks are the same codes";
  config.weights_2d = false;
  EXPECT_TRUE(middle(config).dgrad_requantizes());
  config.operands["wgrad.x"].source = "input";
  EXPECT_TRUE(middle(config).dgrad_requantizes());
  EXPECT_FALSE(middle(config).wgrad_requantizes());
  config.high_precision.fp8 = {"blocks.10.*"};
  EXPECT_FALSE(middle(config).dgrad_requantizes()) << "layers in FP8 are as the fp8 recipe has them";

  PrecisionConfig straight = config_of("nvfp4");
  straight.source = "input";
  straight.schedule = {{.at = 0, .forward = {}, .backward = "bf16"}};
  EXPECT_FALSE(middle(straight).dgrad_reads_fprop() || middle(straight).wgrad_reads_fprop());
}

TEST(RecipeSwitches, StochasticRounding) {
  PrecisionConfig config = config_of("nvfp4");
  const auto stochastic = [&] {
    std::string result;
    for (const auto& spec : middle(config).operands)
      result += spec->rounding == Rounding::nearest      ? 'n'
                : spec->rounding == Rounding::stochastic ? 's'
                                                         : 'h';
    return result;
  };
  EXPECT_EQ(stochastic(), "nnsnsn");
  config.sr_hardware = true;
  EXPECT_EQ(stochastic(), "nnhnhn");
  config.sr_hardware = false;
  config.sr = std::vector<std::string>{};
  EXPECT_EQ(stochastic(), "nnnnnn");
  config.sr = {"activations"};
  EXPECT_EQ(stochastic(), "snnnns");
  config.sr = {"weights", "gradients"};
  EXPECT_EQ(stochastic(), "nssssn");
}

TEST(RecipeSwitches, OneDimensionalWeights) {
  PrecisionConfig config = config_of("nvfp4");
  config.weights_2d = false;
  Expected expected = nvfp4_table();
  for (QuantSpec& spec : expected) spec.block = {1, 16};
  expect_table(middle(config), expected);
  EXPECT_FALSE(middle(config).weight_codes_shared());
  config.recipe = "fp8";
  EXPECT_EQ(middle(config)[Operand::fprop_w]->block, (BlockShape{1, 128}));
  config.weights_2d = true;
  EXPECT_EQ(middle(config)[Operand::fprop_w]->block, (BlockShape{128, 128}));
}

TEST(RecipeSwitches, ScalesOfTheForwardAndOfTheBackwardPass) {
  PrecisionConfig config = config_of("nvfp4");
  EXPECT_EQ(scalings(config), "ssssss");
  config.scale.forward = "4/6";
  EXPECT_EQ(scalings(config), "44s4ss") << "dgrad reads the same square blocks of W as fprop";
  EXPECT_TRUE(middle(config).weight_codes_shared());
  config.weights_2d = false;
  EXPECT_EQ(scalings(config), "44ssss");
  config.scale = {.forward = {}, .backward = "search", .mxfp4 = {}};
  EXPECT_EQ(scalings(config), "sseeee");
  config.scale.forward = "nearest";
  config.recipe = "tetrad";
  EXPECT_EQ(scalings(config), "sseeee");
}

TEST(RecipeSwitches, ScalesOfMxfp4) {
  PrecisionConfig config = config_of("mxfp4");
  EXPECT_EQ(scalings(config), "uuuuuu");
  config.scale.forward = config.scale.backward = "search";
  EXPECT_EQ(scalings(config), "uuuuuu") << "those are for NVFP4";
  config.scale.mxfp4 = "floor";
  EXPECT_EQ(scalings(config), "ssssss");
  config.recipe = "nvfp4";
  EXPECT_EQ(scalings(config), "eeeeee");
}

TEST(RecipeSwitches, TwoDimensionalWeightsOfMxfp4) {
  PrecisionConfig config = config_of("mxfp4");
  config.weights_2d = true;
  EXPECT_EQ(middle(config)[Operand::fprop_w]->block, (BlockShape{32, 32}));
  EXPECT_TRUE(middle(config).weight_codes_shared());
}

// ---------------------------------------------------------------------------------------------------------------------

TEST(RecipeOperands, OverridesChangeWhatTheySayAndNothingElse) {
  PrecisionConfig config = config_of("nvfp4");
  config.operands["fprop.w"].block = "1x16";
  config.operands["dgrad.dy"].rounding = "stochastic-hardware";
  config.operands["dgrad.dy"].scale = "4/6";
  config.operands["wgrad.x"].hadamard = config.operands["wgrad.dy"].hadamard = 32;
  Expected expected = nvfp4_table();
  expected[1].block = {1, 16};
  expected[2].rounding = Rounding::stochastic_hardware;
  expected[2].scaling = Scaling::four_six;
  expected[4].hadamard = expected[5].hadamard = 32;
  expect_table(middle(config), expected);
  EXPECT_FALSE(middle(config).weight_codes_shared());
}

TEST(RecipeOperands, AnotherFormatBringsItsBlock) {
  PrecisionConfig config = config_of("nvfp4");
  config.scale.forward = config.scale.backward = "4/6";
  config.operands["fprop.x"].format = "fp8";
  config.operands["dgrad.w"].format = "mxfp4";
  const LinearPrecision precision = middle(config);
  EXPECT_TRUE(
      same(*precision[Operand::fprop_x], QuantSpec{.format = Format::fp8, .block = {1, 128}, .axis = 1}));
  EXPECT_TRUE(same(*precision[Operand::dgrad_w],
                   QuantSpec{.format = Format::mxfp4, .block = {1, 32}, .axis = 0, .scaling = Scaling::up}));
  EXPECT_FALSE(precision.weight_codes_shared());
}

TEST(RecipeOperands, SayingTheSameFormatChangesNothing) {
  PrecisionConfig config = config_of("nvfp4");
  for (const Operand operand : kAll) config.operands[std::string(name_of(operand))].format = "nvfp4";
  expect_table(middle(config), nvfp4_table());
}

TEST(RecipeOperands, UnquantizedOperandOfATransformedProductEndsTheTransform) {
  for (const auto& [off, other] :
       {std::pair{Operand::wgrad_dy, Operand::wgrad_x}, std::pair{Operand::wgrad_x, Operand::wgrad_dy}}) {
    PrecisionConfig config = config_of("nvfp4");
    config.operands[std::string(name_of(off))].format = "bf16";
    const LinearPrecision precision = middle(config);
    EXPECT_FALSE(precision[off].has_value());
    ASSERT_TRUE(precision[other].has_value());
    EXPECT_EQ(precision[other]->hadamard, 0) << "a transform of one side would not cancel";
    EXPECT_TRUE(precision[Operand::fprop_x].has_value());
  }
}

TEST(RecipeOperands, CountOnABf16RecipeToo) {
  PrecisionConfig config = config_of("bf16");
  config.operands["fprop.w"].format = "nvfp4";
  const LinearPrecision precision = middle(config);
  ASSERT_TRUE(precision[Operand::fprop_w].has_value());
  EXPECT_TRUE(same(*precision[Operand::fprop_w], QuantSpec{}));
  for (const Operand operand : kAll)
    EXPECT_EQ(precision[operand].has_value(), operand == Operand::fprop_w) << name_of(operand);
}

TEST(RecipeOperands, RestWhileAScheduleIsInBf16) {
  PrecisionConfig config = config_of("nvfp4");
  config.operands["fprop.x"].rounding = "stochastic";
  config.operands["fprop.w"].format = "fp8";
  config.schedule = {{.at = 0.5, .forward = "bf16", .backward = {}}};
  EXPECT_EQ(middle(config, 0)[Operand::fprop_w]->format, Format::fp8);
  EXPECT_FALSE(middle(config, 0.5)[Operand::fprop_w].has_value());
  EXPECT_FALSE(middle(config, 0.5)[Operand::fprop_x].has_value());
  config.recipe = "bf16";
  config.schedule = {{.at = 0.5, .forward = "nvfp4", .backward = "nvfp4"}};
  EXPECT_FALSE(middle(config, 0)[Operand::fprop_w].has_value());
  EXPECT_EQ(middle(config, 0.5)[Operand::fprop_w]->format, Format::fp8);
  EXPECT_EQ(middle(config, 0.5)[Operand::fprop_x]->rounding, Rounding::stochastic);
}

// ---------------------------------------------------------------------------------------------------------------------

/// The blocks that stay unquantized, as a string of b (BF16) and q.
std::string kept(const PrecisionConfig& config, std::int64_t blocks, double progress = 0) {
  const Recipe recipe(config, blocks);
  std::string result;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::string name = "blocks." + std::to_string(block) + ".up";
    const LayerId layer{name, block};
    const bool forward = recipe.at(layer, progress)[Operand::fprop_x].has_value();
    EXPECT_EQ(forward, recipe.at(layer, progress)[Operand::wgrad_dy].has_value()) << name;
    result += forward ? 'q' : 'b';
  }
  return result;
}

TEST(HighPrecision, DefaultsOfTheRecipes) {
  EXPECT_EQ(kept(config_of("nvfp4"), 20), "qqqqqqqqqqqqqqqqqbbb");
  EXPECT_EQ(kept(config_of("mxfp4"), 4), "qqqb");
  EXPECT_EQ(kept(config_of("fp8"), 6), "bqqqbb");
  EXPECT_EQ(kept(config_of("bf16"), 3), "bbb");
  for (std::int64_t blocks = 20; blocks <= 400; blocks += 20) {
    const std::string all = kept(config_of("nvfp4"), blocks);
    EXPECT_EQ(std::count(all.begin(), all.end(), 'b'), blocks * 3 / 20)
        << "15 % of " << blocks << ", no more";
  }
  for (const std::int64_t blocks : {1, 2, 3, 7, 62})
    EXPECT_EQ(kept(config_of("nvfp4"), blocks).back(), 'b') << "at least the last of " << blocks;
}

TEST(HighPrecision, FirstAndLast) {
  PrecisionConfig config = config_of("nvfp4");
  config.high_precision.first = 2;
  config.high_precision.last = 1;
  EXPECT_EQ(kept(config, 6), "bbqqqb");
  config.high_precision.last = 0;
  config.high_precision.first = 0;
  EXPECT_EQ(kept(config, 6), "qqqqqq");
  config.high_precision.first = 100;
  EXPECT_EQ(kept(config, 3), "bbb");
  config.high_precision.first.reset();
  config.high_precision.last = 100;
  EXPECT_EQ(kept(config, 3), "bbb");
}

TEST(HighPrecision, Match) {
  PrecisionConfig config = config_of("nvfp4");
  config.high_precision.last = 0;
  config.high_precision.match = {"blocks.1.*"};
  EXPECT_EQ(kept(config, 12), "qbqqqqqqqqqq") << "not blocks 10 and 11";
  config.high_precision.match = {"*.qkv", "*.3.up"};
  EXPECT_EQ(kept(config, 6), "qqqbqq");
  const Recipe recipe(config, 6);
  EXPECT_FALSE(recipe.at({"blocks.0.qkv", 0}, 0)[Operand::fprop_x].has_value());
  EXPECT_TRUE(recipe.at({"blocks.0.out", 0}, 0)[Operand::fprop_x].has_value());
}

TEST(HighPrecision, LayersInFp8AreWhatThatRecipeMakesOfThem) {
  for (const char* name : {"nvfp4", "mxfp4"}) {
    PrecisionConfig config = config_of(name);
    config.high_precision.last = 0;
    config.high_precision.fp8 = {"blocks.1.*"};
    config.rht.gemms = std::vector<std::string>{"fprop", "wgrad"};
    config.sr = std::vector<std::string>{"gradients", "weights"};
    config.rht.signs = "per-step";
    PrecisionConfig fp8 = config_of("fp8");
    fp8.high_precision.first = 0;
    const Recipe recipe(config, 6);
    const LayerId layer{"blocks.1.up", 1};
    EXPECT_EQ(describe(recipe.at(layer, 0), "bf16"), describe(Recipe(fp8, 6).at(layer, 0), "bf16"));
    EXPECT_TRUE(recipe.stays_fp8(layer));
    EXPECT_NE(recipe.at({"blocks.2.up", 2}, 0)[Operand::fprop_w]->format, Format::fp8);
    EXPECT_FALSE(recipe.stays_fp8({"blocks.2.up", 2}));
  }
}

TEST(HighPrecision, Fp8NeverLowersAPrecision) {
  PrecisionConfig config = config_of("nvfp4");
  config.high_precision.first = 1;
  config.high_precision.last = 0;
  config.high_precision.match = {"*.3.up"};
  config.high_precision.fp8 = {"*"};
  config.schedule = {{.at = 0.5, .forward = "bf16", .backward = {}}};
  EXPECT_EQ(kept(config, 5), "bqqbq");
  const Recipe recipe(config, 5);
  const LinearPrecision later = recipe.at({"blocks.1.up", 1}, 0.5);
  EXPECT_FALSE(later[Operand::fprop_x].has_value());
  EXPECT_EQ(later[Operand::wgrad_dy]->format, Format::fp8);
  config.schedule.clear();
  config.operands["wgrad.x"].format = "bf16";
  EXPECT_FALSE(Recipe(config, 5).at({"blocks.1.up", 1}, 0)[Operand::wgrad_x].has_value());
}

// ---------------------------------------------------------------------------------------------------------------------

std::string formats(const PrecisionConfig& config, double progress) {
  const LinearPrecision precision = middle(config, progress);
  const auto name = [&](Operand operand) {
    return precision[operand] ? std::string(name_of(precision[operand]->format)) : "bf16";
  };
  EXPECT_EQ(name(Operand::fprop_x), name(Operand::fprop_w));
  for (const Operand operand : {Operand::dgrad_w, Operand::wgrad_dy, Operand::wgrad_x})
    EXPECT_EQ(name(Operand::dgrad_dy), name(operand));
  return name(Operand::fprop_x) + "/" + name(Operand::dgrad_dy);
}

TEST(Schedule, SwitchesEachPassFromTheFractionOn) {
  PrecisionConfig config = config_of("nvfp4");
  config.schedule = {{.at = 0.25, .forward = "fp8", .backward = {}},
                     {.at = 0.5, .forward = {}, .backward = "mxfp4"},
                     {.at = 0.82, .forward = "bf16", .backward = "bf16"}};
  const auto below = [](double x) { return std::nextafter(x, 0.0); };
  EXPECT_EQ(formats(config, 0), "nvfp4/nvfp4");
  EXPECT_EQ(formats(config, below(0.25)), "nvfp4/nvfp4");
  EXPECT_EQ(formats(config, 0.25), "fp8/nvfp4");
  EXPECT_EQ(formats(config, below(0.5)), "fp8/nvfp4");
  EXPECT_EQ(formats(config, 0.5), "fp8/mxfp4");
  EXPECT_EQ(formats(config, below(0.82)), "fp8/mxfp4");
  EXPECT_EQ(formats(config, 0.82), "bf16/bf16");
  EXPECT_EQ(formats(config, 1), "bf16/bf16");
}

TEST(Schedule, GoesFromHighToLowAsWell) {
  PrecisionConfig config = config_of("bf16");
  config.schedule = {{.at = 0, .forward = {}, .backward = "nvfp4"},
                     {.at = 0.1, .forward = "nvfp4", .backward = {}}};
  EXPECT_EQ(formats(config, 0), "bf16/nvfp4");
  EXPECT_EQ(formats(config, 0.1), "nvfp4/nvfp4");
}

TEST(Schedule, ABackwardPassInBf16ReadsWhatTheForwardPassMultiplied) {
  PrecisionConfig config = config_of("nvfp4");
  EXPECT_FALSE(middle(config).dgrad_reads_fprop() || middle(config).wgrad_reads_fprop());
  config.schedule = {{.at = 0.5, .forward = {}, .backward = "bf16"},
                     {.at = 0.8, .forward = "bf16", .backward = {}}};
  const LinearPrecision later = middle(config, 0.5);
  EXPECT_TRUE(later.dgrad_reads_fprop() && later.wgrad_reads_fprop() && later.weight_form_shared());
  EXPECT_EQ(later.saved_operand(), Operand::fprop_x);
  EXPECT_EQ(
      describe(later, "bf16"),
      "fprop x nvfp4 1x16, nearest · w nvfp4 16x16, nearest | dgrad dy bf16 · w of fprop | wgrad dy bf16 "
      "· x of fprop");
  const LinearPrecision last = middle(config, 0.8);
  EXPECT_FALSE(last.dgrad_reads_fprop() || last.wgrad_reads_fprop()) << "nothing was quantized";
  EXPECT_FALSE(last.saved_spec().has_value());
}

TEST(Schedule, KeepsEachRecipesOwnHighPrecisionBlocks) {
  PrecisionConfig config = config_of("fp8");
  config.schedule = {{.at = 0.5, .forward = "nvfp4", .backward = "nvfp4"}};
  EXPECT_EQ(kept(config, 8, 0), "bqqqqqbb");
  EXPECT_EQ(kept(config, 8, 0.5), "qqqqqqbb");
}

// ---------------------------------------------------------------------------------------------------------------------

TEST(RecipeErrors, NameTheKeyAndWhatIsWrong) {
  const auto expect_error = [](const auto& change, const std::vector<std::string>& words) {
    PrecisionConfig config;
    change(config);
    expect_bad_input([&] { Recipe(config, kBlocks); }, words, words.front());
  };
  using C = PrecisionConfig&;
  expect_error([](C c) { c.recipe = "fp16"; }, {"fp16", "nvfp4"});
  expect_error([](C c) { c.recipe = ""; }, {"nvfp4"});
  expect_error([](C c) { c.rht.gemms = {"wgrad", "bprop"}; }, {"rht.gemms", "bprop", "dgrad"});
  expect_error([](C c) { c.rht.signs = "random"; }, {"rht.signs", "random", "per-step"});
  expect_error([](C c) { c.source = "output"; }, {"precision.source", "output", "fprop"});
  expect_error([](C c) { c.operands["dgrad.dy"].source = "fprop"; }, {"dgrad.dy", "wgrad.x", "source"});
  expect_error([](C c) { c.sr = {"gradient"}; }, {"sr", "gradient", "gradients"});
  expect_error([](C c) { c.operands["fprop.y"] = {}; }, {"operands", "fprop.y", "wgrad.dy"});
  expect_error([](C c) { c.operands["fprop.x"].format = "int4"; }, {"int4"});
  expect_error([](C c) { c.operands["fprop.x"].block = "2x2"; }, {"2x2"});
  expect_error([](C c) { c.operands["fprop.x"].rounding = "up"; }, {"up"});
  expect_error([](C c) { c.operands["wgrad.x"].hadamard = 32; }, {"wgrad.dy", "wgrad.x", "32", "16"});
  expect_error([](C c) { c.schedule = {{.at = 0.5, .forward = "fp4", .backward = {}}}; }, {"fp4"});
  expect_error(
      [](C c) {
        c.recipe = "bf16";
        c.operands["fprop.x"].rounding = "stochastic";
      },
      {"fprop.x", "format"});
}

TEST(RecipeErrors, QuantizersThatDoNotExistAreRefusedBeforeTheyAreUsed) {
  const auto expect_error = [](const auto& change, const std::vector<std::string>& words) {
    PrecisionConfig config;
    change(config);
    expect_bad_input([&] { Recipe(config, kBlocks); }, words, words.front());
  };
  using C = PrecisionConfig&;
  expect_error([](C c) { c.rht.size = 24; }, {"24", "Hadamard"});
  expect_error([](C c) { c.rht.size = 256; }, {"256"});
  expect_error([](C c) { c.rht.size = (1LL << 32) + 16; }, {"4294967312"});
  expect_error([](C c) { c.rht.size = -16; }, {"-16"});
  expect_error([](C c) { c.operands["fprop.x"].block = "1x128"; }, {"fprop.x", "1x128", "nvfp4"});
  expect_error(
      [](C c) {
        c.recipe = "mxfp4";
        c.operands["fprop.x"].scale = "search";
      },
      {"fprop.x.scale", "search", "floor, up"});
  expect_error([](C c) { c.scale.forward = "up"; }, {"scale.forward", "up", "4/6"});
  expect_error([](C c) { c.scale.forward = "eden"; }, {"scale.forward", "eden", "4/6"});
  expect_error([](C c) { c.operands["fprop.x"].scale = "eden"; }, {"fprop.x", "eden", "Hadamard"});
  const auto eden = [](const auto& change) {
    return [change](C c) {
      c.scale.backward = "eden";
      change(c);
    };
  };
  expect_error(eden([](C c) { c.rht.gemms = {"wgrad"}; }), {"dgrad.dy", "eden", "Hadamard transform"});
  expect_error(eden([](C c) { c.rht.size = 8; }), {"dgrad.dy", "16, 32, 64 or 128, not 8"});
  expect_error(eden([](C c) { c.sr = {"gradients"}; }), {"dgrad.dy", "stochastic rounding"});
  expect_error(eden([](C c) { c.operands["dgrad.w"].block = "16x16"; }), {"dgrad.w", "1x16"});
  expect_error(eden([](C c) { c.rht.gemms = {"fprop", "dgrad", "wgrad"}; }), {"fresh", "per-step"});
  expect_error(
      [](C c) {
        c.rht.gemms = {"fprop"};
        c.source = "fprop";
      },
      {"precision.source", "rht", "source: input"});
  expect_error([](C c) { c.scale.mxfp4 = "nearest"; }, {"scale.mxfp4", "nearest", "floor"});
  expect_error(
      [](C c) {
        c.rht.gemms = {"fprop"};
        c.schedule = {{.at = 0.5, .forward = {}, .backward = "bf16"}};
      },
      {"fprop", "rht", "backward"});
}

// ---------------------------------------------------------------------------------------------------------------------

TEST(Matches, StarsStandForAnything) {
  for (const auto& [pattern, text] : {std::pair{"", ""},
                                      {"*", ""},
                                      {"*", "abc"},
                                      {"abc", "abc"},
                                      {"a*", "a"},
                                      {"a*c", "abbbc"},
                                      {"*b*", "abc"},
                                      {"**", "x"},
                                      {"a**c", "ac"},
                                      {"*.qkv", "blocks.3.qkv"},
                                      {"blocks.*.out", "blocks.12.out"},
                                      {"*aab", "aaaab"},
                                      {"*ab*ab", "ababab"}})
    EXPECT_TRUE(matches(pattern, text)) << pattern << " " << text;
  for (const auto& [pattern, text] : {std::pair{"", "a"},
                                      {"a", ""},
                                      {"a", "ab"},
                                      {"b*", "ab"},
                                      {"*b", "abc"},
                                      {"a*c", "ab"},
                                      {"blocks.1.*", "blocks.10.up"},
                                      {"*ab*ab", "ab"},
                                      {"?", "a"},
                                      {".", "a"},
                                      {"A", "a"}})
    EXPECT_FALSE(matches(pattern, text)) << pattern << " " << text;
}

TEST(Matches, IsFastForAnyPattern) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  const std::string text = std::string(4000, 'a') + "b";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(matches(pattern, text));
  EXPECT_FALSE(matches(pattern + "*c*", text));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 1) << "a matcher that tries every way would not end";
}

TEST(Describe, SaysEachOperand) {
  const std::string text = describe(middle(config_of("nvfp4")), "bf16");
  EXPECT_EQ(
      text,
      "fprop x nvfp4 1x16, nearest · w nvfp4 16x16, nearest | dgrad dy nvfp4 1x16, stochastic · w nvfp4 "
      "16x16, axis 0, nearest | wgrad dy nvfp4 1x16, axis 0, stochastic, hadamard 16 · x nvfp4 1x16, "
      "axis 0, nearest, hadamard 16");
  EXPECT_EQ(describe(middle(config_of("bf16")), "f32"),
            "fprop x f32 · w f32 | dgrad dy f32 · w f32 | wgrad dy f32 · x f32");
}

TEST(Recipes, AreResolvedOncePerPhaseAndKindOfLayer) {
  PrecisionConfig config;
  config.high_precision.first = 0;
  config.high_precision.last = 1;
  config.schedule = {{.at = 0.5, .forward = "bf16", .backward = {}}};
  const Recipe recipe(config, 4);
  const LinearPrecision* first = &recipe.at({"blocks.0.up", 0}, 0);
  EXPECT_EQ(&recipe.at({"blocks.0.up", 0}, 0.49), first);
  EXPECT_EQ(&recipe.at({"blocks.2.down", 2}, 0), first) << "layers of one kind share a result";
  EXPECT_NE(&recipe.at({"blocks.3.up", 3}, 0), first) << "it stays in BF16";
  EXPECT_NE(&recipe.at({"blocks.0.up", 0}, 0.5), first) << "the next phase";
}

TEST(Recipes, AllNamesCanBeUsed) {
  for (const std::string_view name : kRecipeNames) {
    PrecisionConfig config;
    config.recipe = name;
    EXPECT_EQ(Recipe(config, 8).names_at(0).forward, name);
  }
}

}  // namespace
}  // namespace tetrad::testing
