// SPDX-License-Identifier: Apache-2.0
#include "tetrad/config/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "support/errors.h"
#include "support/files.h"
#include "tetrad/model/presets.h"

namespace tetrad {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;
using Words = std::vector<std::string>;

Config load(const std::vector<std::string>& texts, const std::vector<std::string>& overrides = {},
            Provenance* provenance = nullptr) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (const std::string& text : texts) {
    files.push_back(folder.file(fmt::format("{}.yaml", char('a' + files.size()))));
    write_file(files.back(), text);
  }
  Config config = load_config(files, overrides, provenance);
  if (provenance != nullptr)  // without the folder, whose name is random
    for (auto& [key, origin] : provenance->origins)
      if (const auto at = origin.find(folder.path().string()); at != std::string::npos)
        origin.erase(at, folder.path().string().size() + 1);
  return config;
}

std::vector<std::filesystem::path> shipped_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(TETRAD_CONFIGS))
    if (entry.is_regular_file()) files.push_back(entry.path());  // compare/ has arms, not runs
  std::sort(files.begin(), files.end());
  return files;
}

// ---- Merging ----

TEST(LoadConfig, NothingGivesTheDefaults) {
  EXPECT_EQ(load({}), Config{});
  EXPECT_EQ(load({"", "# only a comment\n", "train:\n# steps: 3\n"}), Config{});
}

TEST(LoadConfig, MergesLeftToRight) {
  const Config config =
      load({"train: {steps: 1, batch: 2}\nprecision: {sr: [gradients, weights]}\ndata: {sources: {a: x}}",
            "train: {steps: 5, seed: 7}\nprecision: {sr: [activations]}\ndata: {sources: {b: y}}\noptim:\n"},
           {"train.seed=8", "train.seed=9"});
  EXPECT_EQ(config.train.steps, 5);
  EXPECT_EQ(config.train.batch, 2);
  EXPECT_EQ(config.train.seed, 9U);
  EXPECT_EQ(config.precision.sr, Words{"activations"});  // a list replaces
  EXPECT_EQ(config.data.sources.at("a").path, "x");
  EXPECT_EQ(config.data.sources.at("b").path, "y");
}

TEST(LoadConfig, OverridesAreYamlAndCreateMaps) {
  const Config config =
      load({}, {"data.sources.code.path=x/y", "data.sources.code.heldout=z", "data.sources.b=w",
                "data.phases=[{until: 0.5, mix: {code: 1}}, {until: 1, mix: {b: .5, code: 2e0}}]",
                "precision.operands.fprop.x.format=fp8", "precision.operands.wgrad.dy=bf16",
                "run.out=", "model.pattern=*-*-", "optim={lr: 1e-2, clip: 0}", "train.tokens=1.5B"});
  EXPECT_EQ(config.data.sources.at("code"), (SourceConfig{"x/y", "z"}));
  EXPECT_EQ(config.data.sources.at("b"), (SourceConfig{"w", ""}));
  ASSERT_EQ(config.data.phases.size(), 2U);
  EXPECT_EQ(config.data.phases[1].mix, (std::map<std::string, double>{{"b", 0.5}, {"code", 2.0}}));
  EXPECT_EQ(config.precision.operands.at("fprop.x").format, "fp8");
  EXPECT_EQ(config.precision.operands.at("wgrad.dy").format, "bf16");
  EXPECT_EQ(config.run.out, "");
  EXPECT_EQ(config.model.pattern, "*-*-");
  EXPECT_EQ(config.optim.lr, 0.01);
  EXPECT_EQ(config.train.tokens, 1'500'000'000);
}

TEST(LoadConfig, ReadsTheShortForms) {
  const auto precision = [](const std::string& yaml) { return load({"precision: " + yaml}).precision; };
  EXPECT_EQ(precision("mxfp4").recipe, "mxfp4");
  EXPECT_FALSE(precision("{rht: auto}").rht.gemms.has_value());
  EXPECT_EQ(precision("{rht: none}").rht.gemms, Words{});
  EXPECT_EQ(precision("{rht: wgrad}").rht.gemms, Words{"wgrad"});
  EXPECT_EQ(precision("{rht: [wgrad, fprop]}").rht.gemms, (Words{"wgrad", "fprop"}));
  const RhtConfig rht = precision("{rht: {gemms: dgrad, size: 32, signs: none}}").rht;
  EXPECT_EQ(rht.gemms, Words{"dgrad"});
  EXPECT_EQ(rht.size, 32);
  EXPECT_EQ(rht.signs, "none");
  EXPECT_FALSE(precision("{sr: auto}").sr.has_value());
  EXPECT_EQ(precision("{sr: none}").sr, Words{});
  EXPECT_EQ(precision("{sr: gradients}").sr, Words{"gradients"});
  EXPECT_EQ(precision("{high_precision: none}").high_precision, (HighPrecisionConfig{0, 0, {}, {}}));
  EXPECT_EQ(precision("{high_precision: {first: 1, match: '*.qkv'}}").high_precision,
            (HighPrecisionConfig{1, {}, {"*.qkv"}, {}}));
  EXPECT_EQ(precision("{high_precision: {last: 0, fp8: ['blocks.1.*', '*.up']}}").high_precision,
            (HighPrecisionConfig{{}, 0, {}, {"blocks.1.*", "*.up"}}));
  EXPECT_EQ(precision("{scale: search}").scale, (ScaleConfig{"search", "search", {}}));
  EXPECT_EQ(precision("{scale: eden}").scale, (ScaleConfig{{}, "eden", {}}));
  EXPECT_EQ(precision("{scale: floor}").scale, (ScaleConfig{{}, {}, "floor"}));
  EXPECT_EQ(precision("{scale: {forward: 4/6}}").scale, (ScaleConfig{"4/6", {}, {}}));
  EXPECT_EQ(
      precision("{operands: {fprop: {x: {format: fp8}, w: bf16}, wgrad.x: {hadamard: 0, source: fprop}}}")
          .operands,
      (std::map<std::string, OperandConfig>{{"fprop.x", {"fp8", {}, {}, {}, {}, {}}},
                                            {"fprop.w", {"bf16", {}, {}, {}, {}, {}}},
                                            {"wgrad.x", {{}, {}, {}, 0, {}, "fprop"}}}));
  EXPECT_EQ(load({"train: {checkpoint: 100, eval: 50}"}).train.checkpoint.every, 100);
  const MemoryConfig on_device{"device", "values", "device"};
  EXPECT_EQ(load({"train: {memory: device}"}).train.memory, on_device);
  EXPECT_EQ(load({"train: {memory: device}"}, {"train.memory=auto"}).train.memory, MemoryConfig());
  EXPECT_EQ(load({"train: {memory: host}"}).train.memory, (MemoryConfig{"host", "auto", "auto"}));
  EXPECT_EQ(load({"train: {memory: {weights: codes}}"}, {"train.memory.residual=host"}).train.memory,
            (MemoryConfig{"auto", "codes", "host"}));
  EXPECT_EQ(load({"train: {checkpoint: {keep: 5}}"}, {"train.checkpoint=100"}).train.checkpoint,
            (CheckpointConfig{.every = 100, .keep = 5}));
}

// Settings of 0.1.0, written out or by hand, mean what they meant: MXFP4 scales were rounded down.
TEST(Config, ReadsAdaptiveOf010) {
  const auto precision = [](const std::string& yaml) { return load({"precision: " + yaml}).precision; };
  EXPECT_EQ(precision("{recipe: mxfp4, adaptive: false}").scale, (ScaleConfig{{}, {}, "floor"}));
  EXPECT_EQ(precision("{adaptive: true}").scale, (ScaleConfig{"4/6", "4/6", {}}));
  EXPECT_EQ(precision("{adaptive: false}").scale, ScaleConfig{}) << "other recipes have their own scales";
  EXPECT_EQ(precision("{adaptive: false, schedule: [{at: 0.5, backward: mxfp4}]}").scale,
            (ScaleConfig{{}, {}, "floor"}));
  EXPECT_EQ(precision("{adaptive: true, scale: {backward: nearest}}").scale,
            (ScaleConfig{"4/6", "nearest", {}}));
  const auto operand = [&](const std::string& yaml) {
    return precision("{operands: {fprop.x: " + yaml + "}}").operands.at("fprop.x").scale;
  };
  EXPECT_EQ(operand("{format: nvfp4, adaptive: true}"), "4/6");
  EXPECT_EQ(operand("{adaptive: false}"), "nearest");
  EXPECT_EQ(operand("{format: fp8, adaptive: false}"), std::nullopt);
  EXPECT_EQ(operand("{format: nvfp4, block: auto, adaptive: auto}"), std::nullopt);
}

TEST(LoadConfig, TakesModelsByName) {
  EXPECT_EQ(load({"model: llama-162m"}).model, *find_preset("llama-162m"));
  ModelConfig expected = *find_preset("llama-162m");
  expected.vocab = 1000;
  expected.rope->theta = 5;
  const std::string yaml = "model: {vocab: 1000, preset: llama-162m, rope: {theta: 5}}";
  EXPECT_EQ(load({yaml}).model, expected);
  EXPECT_EQ(load({"model: llama-162m"}, {"model.vocab=1000", "model.rope.theta=5"}).model, expected);
  // A model named later is that model, whatever was said of another before.
  EXPECT_EQ(load({yaml, "model: nemotron-h-8b"}).model, *find_preset("nemotron-h-8b"));
  EXPECT_EQ(load({yaml}, {"model.preset=quickstart"}).model, *find_preset("quickstart"));
  EXPECT_FALSE(load({"model: {rope: none}"}).model.rope.has_value());
  const auto ends = [](const std::string& text) {
    return load({"model: {text: {ends: " + text + "}}"}).model.text.ends;
  };
  EXPECT_EQ(ends("none"), std::vector<std::int64_t>{});
  EXPECT_EQ(ends("7"), std::vector<std::int64_t>{7});
  EXPECT_EQ(ends("[7, 0]"), (std::vector<std::int64_t>{7, 0}));
  EXPECT_EQ(load({"model: {text: {begin: 3, end: auto}}"}).model.text, (TextConfig{.begin = 3}));
}

TEST(LoadConfig, ReadsNumbers) {
  for (const auto& [text, tokens] :
       std::vector<std::pair<std::string, std::int64_t>>{{"1000", 1000},
                                                         {"10_000", 10'000},
                                                         {"1e9", 1'000'000'000},
                                                         {"1E+3", 1000},
                                                         {"100M", 100'000'000},
                                                         {"2.5K", 2500},
                                                         {"10T", 10'000'000'000'000},
                                                         {"0.5B", 500'000'000},
                                                         {"0", 0},
                                                         {"1.0", 1},
                                                         {"9223372036854775807", 9'223'372'036'854'775'807}})
    EXPECT_EQ(load({}, {"train.tokens=" + text}).train.tokens, tokens) << text;
  EXPECT_EQ(load({}, {"train.seed=18446744073709551615"}).train.seed, ~0ULL);
  EXPECT_EQ(load({}, {"optim.lr=.5"}).optim.lr, 0.5);
  EXPECT_EQ(load({}, {"optim.lr=1e-3"}).optim.lr, 1e-3);
  EXPECT_EQ(load({}, {"model.norm_epsilon=1e-6"}).model.norm_epsilon, 1e-6f);
  EXPECT_TRUE(load({}, {"model.tied=True"}).model.tied);
}

// ---- Provenance ----

TEST(Provenance, RemembersWhereEachValueCameFrom) {
  Provenance provenance;
  const Config config = load({"# first line\nmodel: quickstart\ntrain:\n  steps: 3\n  batch: 4\n",
                              "train: {batch: 8}\ndata:\n  phases:\n    - {until: 1, mix: {a: 1}}\n"},
                             {"train.seed=3", "model.rope.theta=7"}, &provenance);
  const std::string text = explain(config, provenance);
  for (const std::string line :
       {"train.steps = 3  # a.yaml:4\n", "train.batch = 8  # b.yaml:1\n",
        "train.seed = 3  # command line: \"train.seed=3\"\n", "train.sequence = 0  # default\n",
        "model.hidden = 128  # preset quickstart\n",
        "model.rope.theta = 7  # command line: \"model.rope.theta=7\"\n",
        "model.rope.scaling = none  # preset quickstart\n",
        "data.phases = [{until: 1, mix: {a: 1}}]  # b.yaml:3\n", "precision.rht.gemms = auto  # default\n",
        "data.sources = {}  # default\n"})
    EXPECT_NE(text.find("\n" + line), text.npos) << line << "in:\n" << text;
}

TEST(SchemaHelp, SaysWhatEveryKeyMeans) {
  const std::string help = schema_help();
  EXPECT_NE(help.find("optim.lr = 0.003  # peak learning rate\n"), help.npos) << help;
  EXPECT_EQ(help.find("#  \n"), help.npos);
  EXPECT_EQ(help.find("# \n"), help.npos);
  EXPECT_NE(help.find("model.rope.scaling.factor = 8  # "), help.npos);
}

TEST(SchemaHelp, ValuesAreTheDefaults) {
  const std::string help = schema_help();
  for (const char* line : {"precision.schedule = []  # ", "precision.schedule[].at = 0  # ",
                           "precision.operands = {}  # ", "data.sources = {}  # ", "data.phases = []  # ",
                           "data.phases[].mix = {}  # ", "model.rope.scaling = none  # "})
    EXPECT_NE(help.find(line), help.npos) << line;
  // Whoever gives every key the value that is shown changes nothing.
  std::vector<std::string> overrides;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    const std::string key = line.substr(0, line.find(" = "));
    if (key.find("[]") != std::string::npos || key.find("NAME") != std::string::npos ||
        key.starts_with("model.rope.scaling."))
      continue;
    const std::size_t value = key.size() + 3;
    overrides.push_back(key + "=" + line.substr(value, line.find("  # ") - value));
  }
  ASSERT_GT(overrides.size(), 70U);
  EXPECT_EQ(parse_config("", "empty.yaml", overrides), Config{});
}

TEST(Merging, AMapWithReplaceDropsWhatWasBefore) {
  const TemporaryFolder folder;
  write_file(folder / "base.yaml", "data: {sources: {code: code, text: {path: text, heldout: t}}}\n");
  write_file(folder / "mine.yaml", "data:\n  sources: !replace\n    mine: tokens\n");
  write_file(folder / "more.yaml", "data: {sources: {more: more}}\n");
  const auto sources = [&](const std::vector<std::string>& names, const std::vector<std::string>& overrides) {
    std::vector<std::string> files;
    for (const std::string& name : names) files.push_back(folder.file(name));
    std::vector<std::string> found;
    for (const auto& [name, source] : load_config(files, overrides).data.sources) found.push_back(name);
    return found;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(sources({"base.yaml", "more.yaml"}, {}), (Names{"code", "more", "text"}));
  EXPECT_EQ(sources({"base.yaml", "mine.yaml"}, {}), (Names{"mine"}));
  EXPECT_EQ(sources({"base.yaml", "mine.yaml", "more.yaml"}, {}), (Names{"mine", "more"}));
  EXPECT_EQ(sources({"base.yaml"}, {"data.sources=!replace {own: x}"}), (Names{"own"}));
}

// ---- Round trips ----

TEST(ToYaml, GivesTheSameConfigBackForEveryShippedFile) {
  const auto files = shipped_files();
  ASSERT_EQ(files.size(), 14U);
  for (const auto& file : files) {
    const Config config = load_config(std::array{file.string()}, {});
    EXPECT_NO_THROW(validate(config)) << file;
    const std::string yaml = to_yaml(config);
    const Config again = parse_config(yaml, "again.yaml");
    EXPECT_EQ(again, config) << yaml;
    EXPECT_EQ(to_yaml(again), yaml);
    EXPECT_TRUE(differences(config, again).empty());
    EXPECT_LE(read_file(file).size(), 1500U) << file;
  }
}

TEST(ToYaml, GivesOddValuesBack) {
  Config config;
  config.run.out = "a \"b\"\\ \n\t: # {x} \xC3\xA9 \xC2\x85 \xE2\x80\xA8 \xE2\x80\xA9 \x7F";
  config.model.name = "null";
  config.model.pattern = "*-M";
  config.model.rope.reset();
  config.model.norm_epsilon = 1.1754944e-38f;
  config.data.tokenizer = "auto";
  config.data.sources = {{"null", {"none", "~"}}, {"1", {" lead", "-x"}}, {"true", {"true", "3"}}};
  config.data.phases = {{1.0 / 3, {{"1", 1e-300}, {"null", 1e300}}}, {1, {{"true", 0.1}}}};
  config.precision.high_precision.match = {"none", "*", "", "a, b"};
  config.precision.high_precision.fp8 = {"*.qkv", "none"};
  config.precision.rht.gemms = Words{};
  config.precision.source = "fprop";
  config.precision.sr = Words{"weights"};
  config.precision.sr_hardware = false;
  config.precision.operands["dgrad.w"] = {"fp8", "tensor", "stochastic-hardware", 128, "nearest", "input"};
  config.precision.scale = {"search", {}, "floor"};
  config.precision.schedule = {{0.1, "bf16", {}}, {0.2, {}, "fp8"}};
  config.train.seed = ~0ULL;
  config.train.tokens = 9'223'372'036'854'775'807;
  config.optim.lr = 5e-324;
  const std::string yaml = to_yaml(config);
  EXPECT_EQ(parse_config(yaml, "odd.yaml"), config) << yaml;
}

TEST(Differences, NamesTheKeys) {
  const Config a = load({"model: quickstart\ndata: {sources: {a: x}}"});
  EXPECT_TRUE(differences(a, a).empty());
  Config b = a;
  b.precision.recipe = "bf16";
  b.train.seed = 5;
  b.model.rope->theta = 3;
  EXPECT_EQ(differences(a, b), (Words{"model.rope.theta", "precision.recipe", "train.seed"}));
  b = a;
  b.model.rope.reset();
  b.data.sources["b"] = {"y", ""};
  b.data.phases = {{1, {{"a", 1}}}};
  EXPECT_EQ(differences(a, b), (Words{"model.rope.theta", "model.rope.scaling", "data.phases", "model.rope",
                                      "data.sources.b.path", "data.sources.b.heldout"}));
}

// ---- Robustness ----

/// Any change to a good text gives a configuration or an Error; nothing else, and soon.
TEST(LoadConfig, SurvivesDamagedText) {
  std::vector<std::string> seeds = {to_yaml(parse_config("model: quickstart", "s"))};
  for (const auto& file : shipped_files()) seeds.push_back(read_file(file));
  const std::string_view spice = "{}[]:,-*&!|>'\"%@`#?~ \n\t\\.0123456789eE_\x80\xC3\xFFnull";
  std::mt19937 random(1);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = seeds[below(seeds.size())];
    for (std::size_t edits = 1 + below(6); edits > 0; --edits) {
      const std::size_t at = below(text.size());
      const std::size_t what = below(5);
      if (what == 0) text[at] = spice[below(spice.size())];
      if (what == 1) text.insert(at, 1, spice[below(spice.size())]);
      if (what == 2 && text.size() > 40) text.erase(at, 1 + below(20));
      if (what == 3) text.insert(at, text.substr(below(text.size()), 1 + below(40)));
      if (what == 4) text.insert(at, 1 + below(50), spice[below(spice.size())]);
    }
    try {
      const Config config = parse_config(text, "damaged.yaml");
      ++accepted;
      EXPECT_EQ(parse_config(to_yaml(config), "again.yaml"), config) << text;
      validate(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::bad_input) << text;
    }
  }
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace tetrad
