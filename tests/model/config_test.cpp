// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "support/errors.h"
#include "tetrad/model/presets.h"

namespace tetrad {
namespace {

using testing::expect_bad_input;

const ModelConfig& preset(std::string_view name) {
  const ModelConfig* found = find_preset(name);
  if (found == nullptr) throw Error("no preset " + std::string(name));
  return *found;
}

std::int64_t blocks_of(const ModelConfig& model, char letter) {
  return std::count(model.pattern.begin(), model.pattern.end(), letter);
}

TEST(Presets, AreValidAndHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const ModelConfig& model : presets()) {
    EXPECT_NO_THROW(validate(model)) << model.name;
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
  }
  EXPECT_EQ(find_preset("llama"), nullptr);
}

TEST(Presets, HaveThePublishedBlocks) {
  struct Case {
    std::string_view name;
    std::int64_t blocks, attention, ffn, mamba;
  };
  for (const Case& c : {Case{"nemotron-h-12b", 62, 6, 28, 28}, Case{"nemotron-h-8b", 52, 4, 24, 24},
                        Case{"paper-1.2b", 40, 20, 20, 0}, Case{"llama3-8b", 64, 32, 32, 0},
                        Case{"llama3.1-405b", 252, 126, 126, 0}}) {
    const ModelConfig& model = preset(c.name);
    EXPECT_EQ(model.blocks(), c.blocks) << c.name;
    EXPECT_EQ(blocks_of(model, '*'), c.attention) << c.name;
    EXPECT_EQ(blocks_of(model, '-'), c.ffn) << c.name;
    EXPECT_EQ(blocks_of(model, 'M'), c.mamba) << c.name;
  }
}

TEST(Presets, HaveTheParametersOfTheirNames) {
  const auto millions = [](std::string_view name) { return double(parameter_count(preset(name))) / 1e6; };
  // As Meta's checkpoints have them, to the parameter.
  EXPECT_EQ(parameter_count(preset("llama3-8b")), 8'030'261'248);
  EXPECT_EQ(parameter_count(preset("llama3.1-405b")), 405'853'388'800);
  EXPECT_NEAR(millions("nemotron-h-12b"), 12'300, 50);  // published as 12.3B and 8.1B
  EXPECT_NEAR(millions("nemotron-h-8b"), 8'100, 50);
  EXPECT_NEAR(millions("paper-1.2b"), 1'290, 10);  // 0.75B without the embeddings
  EXPECT_NEAR(millions("llama-162m"), 162.2, 0.1);
  EXPECT_NEAR(millions("llama-1b"), 1'107, 1);
  EXPECT_NEAR(millions("nemotron-h-1b"), 1'000, 50);
  EXPECT_NEAR(millions("quickstart"), 0.82, 0.01);
  EXPECT_NEAR(millions("quickstart-hybrid"), 0.83, 0.01);
}

/// Every part counted by hand.
TEST(ParameterCount, AddsUpTheParts) {
  ModelConfig model;
  model.pattern = "M*-";
  model.hidden = 32;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.ffn = 48;
  model.vocab = 100;
  model.mamba = {.heads = 16, .head_dim = 4, .groups = 2, .state = 8, .conv = 4};
  validate(model);
  const std::int64_t inner = 64;
  const std::int64_t embedding = 100 * 32;
  const std::int64_t norms = 4 * 32;
  const std::int64_t attention = (4 + 2 + 2) * 8 * 32 + 32 * 32;
  const std::int64_t ffn = 3 * 48 * 32;
  const std::int64_t mamba =
      (2 * inner + 32 + 16) * 32 + (inner + 32) * 4 + (inner + 32) + 3 * 16 + inner + 32 * inner;
  EXPECT_EQ(parameter_count(model), 2 * embedding + norms + attention + ffn + mamba);
  model.tied = true;
  model.activation = Activation::squared_relu;
  EXPECT_EQ(parameter_count(model), embedding + norms + attention + 2 * 48 * 32 + mamba);
}

TEST(ModelConfig, RefusesWhatCannotBeBuilt) {
  struct Case {
    std::function<void(ModelConfig&)> change;
    std::vector<std::string> words;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Case> cases = {
      {[](auto& m) { m.pattern = ""; }, {"model.pattern is empty", "preset"}},
      {[](auto& m) { m.pattern = "M-X"; }, {"model.pattern has 'X' at position 3"}},
      {[](auto& m) { m.pattern = "M\n"; }, {"byte 0x0A"}},
      {[](auto& m) { m.pattern = std::string(5000, '-'); }, {"5000 blocks", "4096"}},
      {[](auto& m) { m.hidden = 0; }, {"model.hidden is 0"}},
      {[](auto& m) { m.hidden = -16; }, {"model.hidden is -16"}},
      {[](auto& m) { m.hidden = 120; }, {"model.hidden is 120", "multiple of 16", "112 or 128"}},
      {[](auto& m) { m.hidden = std::int64_t{1} << 40; }, {"model.hidden", "1048576"}},
      {[](auto& m) { m.vocab = 0; }, {"model.vocab is 0"}},
      {[](auto& m) { m.vocab = std::int64_t{1} << 62; }, {"model.vocab"}},
      {[](auto& m) { m.ffn = 100; }, {"model.ffn is 100", "multiple of 16"}},
      {[](auto& m) { m.heads = 0; }, {"model.heads is 0"}},
      {[](auto& m) { m.kv_heads = 3; }, {"model.heads (4)", "model.kv_heads (3)"}},
      {[](auto& m) { m.kv_heads = 8; }, {"model.kv_heads is 8", "between 1 and 4"}},
      {[](auto& m) { m.head_dim = 31; }, {"model.head_dim is 31", "even"}},
      {[](auto& m) { m.head_dim = 512; }, {"model.head_dim is 512", "256"}},
      {[](auto& m) { m.head_dim = 2; }, {"model.heads * model.head_dim is 8"}},
      {[](auto& m) { m.head_dim = 4; }, {"model.kv_heads * model.head_dim is 8"}},
      {[](auto& m) { m.rope = RopeConfig{.theta = 0}; }, {"model.rope.theta is 0"}},
      {[](auto& m) { m.rope = RopeConfig{.scaling = RopeScaling{.factor = 0}}; }, {"scaling.factor is 0"}},
      {[](auto& m) { m.rope = RopeConfig{.scaling = RopeScaling{.low_freq_factor = 4}}; },
       {"low_freq_factor (4)", "high_freq_factor (4)"}},
      {[](auto& m) { m.rope = RopeConfig{.scaling = RopeScaling{.original_context = 0}}; },
       {"original_context is 0"}},
      {[](auto& m) { m.mamba.heads = 0; }, {"model.mamba.heads is 0"}},
      {[](auto& m) { m.mamba.groups = 3; }, {"model.mamba.heads (16)", "model.mamba.groups (3)"}},
      {[](auto& m) { m.mamba.heads = 8; }, {"input projection", "392", "multiple of 16"}},
      {[](auto& m) { m.mamba.state = 0; }, {"model.mamba.state is 0"}},
      {[](auto& m) { m.mamba.chunk = 0; }, {"model.mamba.chunk is 0"}},
      {[nan](auto& m) { m.norm_epsilon = nan; }, {"model.norm_epsilon"}},
      {[](auto& m) { m.init_std = 0; }, {"model.init_std"}},
      {[](auto& m) { m.text.context = -1; }, {"model.text.context is -1"}},
      {[](auto& m) { m.text.begin = m.vocab; }, {"model.text.begin"}},
      {[](auto& m) { m.text.end = -1; }, {"model.text.end is -1"}},
      {[](auto& m) {
         m.text.ends = {0, m.vocab};
       },
       {"model.text.ends"}},
  };
  for (const Case& c : cases) {
    ModelConfig model = preset("quickstart-hybrid");
    c.change(model);
    expect_bad_input([&] { validate(model); }, c.words, model.pattern.substr(0, 20));
  }
}

TEST(ModelConfig, LooksOnlyAtWhatThePatternUses) {
  ModelConfig model;
  model.hidden = 64;
  model.vocab = 7;
  model.pattern = "-";
  model.ffn = 16;
  EXPECT_NO_THROW(validate(model));
  EXPECT_EQ(parameter_count(model), 2 * 7 * 64 + 2 * 64 + 3 * 16 * 64);
  model.pattern = "*";
  expect_bad_input([&] { validate(model); }, {"model.heads is 0"}, model.pattern);
  model.pattern = "M";
  expect_bad_input([&] { validate(model); }, {"model.mamba.heads is 0"}, model.pattern);
}

TEST(ParameterCount, RefusesToWrapAround) {
  ModelConfig model = preset("quickstart");
  model.vocab = std::int64_t{1} << 40;
  model.hidden = std::int64_t{1} << 40;
  expect_bad_input([&] { parameter_count(model); }, {"more parameters than can be counted"}, "2^80");
}

}  // namespace
}  // namespace tetrad
