// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/preflight.h"

#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/files.h"
#include "tetrad/backend/memory.h"
#include "tetrad/data/token_file.h"
#include "tetrad/model/presets.h"
#include "tetrad/train/run_parts.h"

namespace tetrad::testing::preflight_test {
namespace {

class Preflight : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.model = *find_preset("quickstart");
    config_.train.steps = 10;
    config_.train.batch = 2;
    config_.train.sequence = 16;
    for (const auto& [name, first] : {std::pair("a", 1), std::pair("b", 2), std::pair("new", 3)})
      write_tokens(name, 1601, first);
    config_.data.sources["a"] = {folder_.file("a"), folder_.file("new")};
  }
  /// 16 tokens of each 17 make a sequence: 1601 tokens have 100.
  void write_tokens(const std::string& name, std::int64_t count, std::int32_t first) {
    TokenFileWriter writer(folder_.file(name), 256);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count), first);
    writer.append(tokens);
    writer.end_document();
    writer.commit({});
  }
  std::vector<std::string> warnings() { return data_warnings(open_dataset(threads_, config_)); }
  void expect_one_warning(const std::vector<std::string>& words) {
    const std::vector<std::string> all = warnings();
    ASSERT_EQ(all.size(), 1U) << ::testing::PrintToString(all);
    for (const std::string& word : words) EXPECT_NE(all[0].find(word), std::string::npos) << all[0];
  }

  TemporaryFolder folder_;
  Threads threads_{1};
  Config config_;
};

TEST_F(Preflight, LayersThatAreNotThereAreRefused) {
  HighPrecisionConfig& kept = config_.precision.high_precision;
  kept = {0, 2, {"blocks.3.*", "*.qkv"}, {"blocks.1.down"}};
  EXPECT_NO_THROW(check_kept_layers(config_));
  kept.match = {"blocks.0.qvk"};
  expect_bad_input([&] { check_kept_layers(config_); },
                   {"match", "blocks.0.qvk", "did you mean", "blocks.0.qkv"});
  kept.match = {"blocks.8.*"};
  expect_bad_input([&] { check_kept_layers(config_); }, {"\"blocks.8.*\"", "blocks.7.down"});
  kept = {{}, {}, {}, {"*.in"}};
  expect_bad_input([&] { check_kept_layers(config_); }, {"fp8", "*.in"});
  kept = {4, 4, {}, {}};
  EXPECT_NO_THROW(check_kept_layers(config_));
  kept.last = 5;
  expect_bad_input([&] { check_kept_layers(config_); }, {"first 4", "last 5", "only 8"});
}

TEST_F(Preflight, TransformsThatFitNoLayerAreRefused) {
  EXPECT_NO_THROW(check_transforms(config_));
  config_.model.ffn = 176;
  config_.precision.recipe = "nvfp4";
  config_.precision.schedule = {{.at = 0.5, .forward = {}, .backward = "bf16"}};
  EXPECT_NO_THROW(check_transforms(config_)) << "wgrad's run along the tokens";
  config_.precision.scale.backward = "eden";
  EXPECT_NO_THROW(check_transforms(config_)) << "its transforms are as large as fits";
  config_.precision.rht.size = 128;
  expect_bad_input([&] { check_transforms(config_); },
                   {"blocks.1.up", "352 outputs", "dgrad", "128", "precision.rht.size=32"});
  config_.precision.rht.size = 32;
  EXPECT_NO_THROW(check_transforms(config_));
  config_.precision.rht.size = 64;
  config_.precision.high_precision.match = {"*.up"};
  EXPECT_NO_THROW(check_transforms(config_));
}

TEST_F(Preflight, DoubtfulDataIsNamed) {
  EXPECT_TRUE(warnings().empty());
  const SourceUse use = source_uses(open_dataset(threads_, config_)).at(0);
  EXPECT_EQ(use.tokens, 1601);
  EXPECT_DOUBLE_EQ(use.epochs, 0.2);
  EXPECT_EQ(use.heldout_tokens, 1601);

  config_.data.sources["b"] = {folder_.file("b"), ""};
  config_.data.phases = {{.until = 1, .mix = {{"a", 1.0}}}};
  expect_one_warning({"data.sources.b", "no phase"});
  config_.data.phases = {{.until = 0.5, .mix = {{"a", 1.0}}}, {.until = 1, .mix = {{"b", 1.0}}}};
  EXPECT_TRUE(warnings().empty());
  config_.data.sources["b"].heldout = folder_.file("a");  // what another source trains on
  expect_one_warning({"data.sources.b.heldout", "data.sources.a"});
  config_.data.sources["b"].heldout = folder_.file("new");
  config_.train.steps = 500;
  config_.data.phases = {{.until = 1, .mix = {{"a", 0.1}, {"b", 0.9}}}};
  expect_one_warning({"data.sources.b", "1601 tokens", "9.0 times"});
}

TEST_F(Preflight, ForetellsTheDisk) {
  config_.run.out = folder_.file("not/there/yet");
  config_.train.checkpoint = {.every = 5, .keep = 3, .keep_every = 2, .keep_best = true};
  const CheckpointSpace space = checkpoint_space(config_);
  EXPECT_EQ(space.each, 12 * parameter_count(config_.model));
  EXPECT_EQ(space.most, (3 + 2 + 1 + 5) * space.each);
  ASSERT_TRUE(space.free);
  EXPECT_TRUE(space_warnings({10, 40, 40}).empty());
  EXPECT_TRUE(space_warnings({10, 40, {}}).empty());
  EXPECT_EQ(space_warnings({10, 40, 39}).size(), 1U);
}

}  // namespace
}  // namespace tetrad::testing::preflight_test
