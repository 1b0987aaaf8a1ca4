// SPDX-License-Identifier: Apache-2.0
// Bad YAML, keys and values: one clear message each.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>

#include "support/errors.h"
#include "support/files.h"
#include "tetrad/config/config.h"

namespace tetrad {
namespace {

using testing::expect_bad_input;
using testing::TemporaryFolder;
using testing::write_file;

struct Case {
  std::string yaml;
  std::vector<std::string> words;
};

void expect_all_refused(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    std::vector<std::string> words = c.words;
    words.emplace_back("bad.yaml");
    expect_bad_input([&] { parse_config(c.yaml, "bad.yaml"); }, words,
                     std::string_view(c.yaml).substr(0, 200));
  }
}

TEST(BadConfig, UnknownKeys) {
  expect_all_refused({
      {"train:\n  step: 3", {"bad.yaml:2: unknown key \"train.step\"", "did you mean 'steps'?"}},
      {"trian:\n  steps: 3", {"bad.yaml:1: unknown key"}},
      {"trian: {steps: 3}", {"unknown key \"trian\"", "did you mean 'train'?"}},
      {"train: {checkpoint: {evry: 3}}", {"\"train.checkpoint.evry\"", "did you mean 'every'?"}},
      {"lr: 3", {"unknown key \"lr\"", "did you mean 'optim.lr'?"}},
      {"schedule: {weight_decay: 1}", {"did you mean 'optim.weight_decay'?"}},
      {"zzzzzzzzz: 3", {"unknown key \"zzzzzzzzz\"; valid keys: model, precision"}},
      {"precision: {operands: {fprop.y: fp8}}",
       {"\"precision.operands.fprop.y\"", "did you mean 'fprop.x'?"}},
      {"precision: {operands: {fprop: {dy: fp8}}}", {"\"precision.operands.fprop.dy\"", "wgrad.dy"}},
      {"precision: {operands: {fprop: fp8}}", {"\"precision.operands.fprop\""}},
      {"precision: {operands: {fprop.x: {formt: fp8}}}", {"fprop.x.formt", "did you mean 'format'?"}},
      {"precision:\n  schedule:\n    - at: 0.5\n      foward: bf16",
       {"bad.yaml:4", "\"precision.schedule[0].foward\"", "did you mean 'forward'?"}},
      {"data: {sources: {a: {pth: x}}}", {"\"data.sources.a.pth\"", "did you mean 'path'?"}},
      {"data: {sources: {a b: x}}", {"data.sources has the name \"a b\"", "letters, digits"}},
      {"\"a\\nb\": 1", {"unknown key \"a\\nb\""}},
      {"<<: {a: 1}", {"unknown key \"<<\""}},
      {std::string(1000, 'k') + ": 1", {"unknown key"}},
  });
}

TEST(BadConfig, WrongTypes) {
  expect_all_refused({
      {"train:\n  steps: x", {"bad.yaml:2: train.steps: expected a whole number", "found \"x\""}},
      {"train: {steps: 1.5}", {"train.steps", "whole number", "1.5"}},
      {"train: {batch: -1}", {"train.batch", "of at least 0", "-1"}},
      {"train: {batch: 1e3}", {"train.batch", "1e3"}},
      {"train: {batch: 010}", {"train.batch", "010"}},
      {"train: {batch: 0x10}", {"train.batch", "0x10"}},
      {"train: {batch: 9223372036854775808}", {"train.batch", "9223372036854775808"}},
      {"train: {batch: '12'}", {"train.batch", "found the text \"12\""}},
      {"train: {batch: [12]}", {"train.batch", "found a list"}},
      {"train: {batch: {a: 1}}", {"train.batch", "found a map"}},
      {"train: {batch: }", {"train.batch", "found nothing"}},
      {"train: {tokens: 1.5}", {"train.tokens", "10T are understood"}},
      {"train: {tokens: 1e}", {"train.tokens"}},
      {"train: {tokens: 1e-1}", {"train.tokens"}},
      {"train: {tokens: 1e99}", {"train.tokens"}},
      {"train: {tokens: 1MM}", {"train.tokens"}},
      {"train: {tokens: 9999999999T}", {"train.tokens"}},
      {"train: {tokens: -1K}", {"train.tokens"}},
      {"train: {tokens: _}", {"train.tokens"}},
      {"train: {seed: -1}", {"train.seed", "2^64"}},
      {"train: {seed: 18446744073709551616}", {"train.seed"}},
      {"train: 5", {"train: expected a map of keys, found \"5\""}},
      {"train: [a]", {"train: expected a map of keys, found a list"}},
      {"optim: {lr: fast}", {"optim.lr: expected a number above 0, found \"fast\""}},
      {"optim: {lr: 0}", {"optim.lr", "above 0"}},
      {"optim: {lr: .nan}", {"optim.lr"}},
      {"optim: {lr: nan}", {"optim.lr"}},
      {"optim: {lr: inf}", {"optim.lr"}},
      {"optim: {lr: 1e999}", {"optim.lr"}},
      {"optim: {beta1: 1}", {"optim.beta1: expected a number of at least 0 and below 1"}},
      {"model: {tied: 1}", {"model.tied: expected true or false"}},
      {"model: {tied: 'true'}", {"model.tied"}},
      {"model: {name: [a]}", {"model.name: expected a text, found a list"}},
      {"model: {name: }", {"model.name: expected a text, found nothing"}},
      {"model: {rope: 5}", {"model.rope: expected a map"}},
      {"model: {rope: {scaling: {factor: 0}}}", {"model.rope.scaling.factor"}},
      {"data: {sources: [a]}", {"data.sources: expected a map, found a list"}},
      {"data: {sources: {a: }}", {"data.sources.a: expected a map"}},
      {"data: {phases: {until: 1}}", {"data.phases: expected a list"}},
      {"data: {phases: [3]}", {"data.phases[0]: expected a map"}},
      {"data: {phases: [{until: 2}]}", {"data.phases[0].until", "of at most 1"}},
      {"data: {phases: [{mix: {a: -1}}]}", {"data.phases[0].mix.a", "of at least 0"}},
      {"precision: {sr: {a: 1}}", {"precision.sr: expected none, a word or a list of gradients"}},
  });
}

TEST(BadConfig, ClosedSetsListWhatTheyHold) {
  expect_all_refused({
      {"precision: nvfp8", {"precision.recipe: expected bf16, fp8, mxfp4, nvfp4 or tetrad, found \"nvfp8\""}},
      {"precision: {rht: wgrd}", {"precision.rht.gemms", "fprop, dgrad or wgrad"}},
      {"precision: {rht: [wgrad, x]}", {"precision.rht.gemms[1]", "\"x\""}},
      {"precision: {rht: [wgrad, wgrad]}", {"precision.rht.gemms holds \"wgrad\" twice"}},
      {"precision: {rht: {size: 256}}", {"precision.rht.size", "of at most 128"}},
      {"precision: {rht: {signs: random}}", {"fixed, none, per-step or fresh"}},
      {"precision: {sr: all}", {"gradients, activations or weights"}},
      {"precision: {storage: f16}", {"bf16 or f32"}},
      {"precision: {high_precision: some}", {"precision.high_precision: expected a map"}},
      {"precision: {operands: {fprop.x: {block: 2x2}}}", {"precision.operands.fprop.x.block", "1x16, 16x16"}},
      {"precision: {operands: {fprop.x: int4}}", {"precision.operands.fprop.x.format", "nvfp4"}},
      {"precision: {schedule: [{at: 1, forward: bf16}]}", {"precision.schedule[0].at", "below 1"}},
      {"precision: {schedule: [{at: 0, forward: fp4}]}", {"precision.schedule[0].forward", "or tetrad"}},
      {"model: {activation: gelu}", {"model.activation: expected swiglu or squared_relu"}},
      {"schedule: {kind: linear}", {"wsd, cosine or constant"}},
      {"train: {health: {policy: ignore}}", {"skip, rollback or stop"}},
      {"run: {backend: tpu}", {"auto, cpu or cuda"}},
  });
}

TEST(BadConfig, UnknownModels) {
  expect_all_refused({
      {"\nmodel: llama-163m",
       {"bad.yaml:2: model: there is no preset", "did you mean 'llama-162m'?", "config.json"}},
      {"model: {preset: [a]}", {"model.preset: expected a preset or a config.json"}},
      {"model: missing/config.json", {"bad.yaml:1: model: cannot read \"missing/config.json\""}},
      {"model: 'a\nb'", {"there is no preset"}},
  });
}

TEST(BadConfig, NotTheYamlOfAConfiguration) {
  expect_all_refused({
      {"a: b: c", {"not valid YAML"}},
      {"train: {steps: 3", {"not valid YAML"}},
      {"train:\n\tsteps: 3", {"bad.yaml:2"}},
      {"- a", {"not a list"}},
      {"hello", {"not a single value"}},
      {"train: {}\n---\noptim: {}", {"second YAML document"}},
      {"train: {steps: 3}\noptim: {}\ntrain: {batch: 3}", {"bad.yaml:3", "\"train\" occurs twice"}},
      {"train: {steps: 3, steps: 3}", {"\"steps\" occurs twice"}},
      {"a: &x [1]\nb: *x", {"bad.yaml:1", "anchors"}},
      {"model: {pattern: *-*-}", {"alias", "in quotes"}},
      {"model:\n  pattern: *-*-", {"bad.yaml:2", "alias", "in quotes"}},
      {"model: {pattern: * }", {"alias", "in quotes"}},
      {"model: *-", {"alias", "in quotes"}},
      {"train: !!map {}", {"tags", "not supported"}},
      {"train: {steps: !!int 3}", {"tags"}},
      {"? [a]\n: b", {"a key must be a word"}},
      {"{: b}", {"a key must be a word"}},
      {std::string("a: \0", 4), {"control character (0x00)"}},
      {"a: \x1B", {"control character (0x1B)"}},
      {"a: \xFF", {"byte 3 is not valid UTF-8"}},
      {"%YAML 3.0\n---\na: 1", {"bad.yaml"}},
  });
}

TEST(BadConfig, TooMuch) {
  std::string many = "train: [";
  for (int i = 0; i < 200'000; ++i) many += "1,";
  std::string keys;
  for (int i = 0; i < 100'000; ++i) keys += fmt::format("k{}: 1\n", i);
  std::string blocks;
  for (int i = 0; i < 1000; ++i) blocks += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  expect_all_refused({
      {std::string((1 << 20) + 1, '#'), {"1048577 bytes", "1048576"}},
      {"a: " + std::string(1'000'000, '['), {"bracket left open"}},
      {"a: " + std::string(1'000'000, '{'), {"bad.yaml:1"}},
      {std::string(33, '[') + std::string(33, ']'), {"nested more than 32 deep"}},
      {blocks, {"nested more than 32 deep"}},
      {many + "]", {"more than 100000 values"}},
      {keys, {"more than 1000 keys"}},
      {"a: " + std::string(1'000'000, '-'), {"bad.yaml"}},
      {"a: \"" + std::string(1'000'000, ' '), {"bad.yaml"}},
      {std::string(1'000'000, 'a'), {"single value"}},
      {"train: {steps: " + std::string(1'000'000, '9') + "}", {"train.steps"}},
  });
  std::string dashes;
  for (int i = 0; i < 300'000; ++i) dashes += "- ";
  std::string questions;
  for (int i = 0; i < 300'000; ++i) questions += "? ";
  expect_all_refused({{dashes, {"nested more than 32 deep"}}, {questions, {"bad.yaml"}}});
}

TEST(BadConfig, Files) {
  const TemporaryFolder folder;
  const auto expect = [](const std::string& path, const std::vector<std::string>& words) {
    expect_bad_input([&] { load_config(std::array{path}, {}); }, words, path);
  };
  expect(folder.file("missing.yaml"), {"missing.yaml", "No such file"});
  expect(folder.path(), {"is a folder"});
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  expect(folder.file("pipe"), {"not a regular file"});
  write_file(folder / "large.yaml", std::string(2 << 20, '#'));
  expect(folder.file("large.yaml"), {"large.yaml", "more than the 1048576"});
}

TEST(BadConfig, Overrides) {
  const auto expect = [](const std::string& argument, const std::vector<std::string>& words) {
    expect_bad_input([&] { load_config({}, std::array{argument}); }, words, argument);
  };
  expect("train.steps", {"\"train.steps\"", "key=value"});
  expect("=3", {"command line: \"=3\"", "names with a dot between"});
  expect("train.=3", {"names with a dot"});
  expect(".steps=3", {"names with a dot"});
  expect("train..steps=3", {"names with a dot"});
  expect("train.steps=x", {"command line: \"train.steps=x\": train.steps: expected a whole number"});
  expect("train.stps=3", {"command line: \"train.stps=3\": unknown key \"train.stps\"", "'steps'"});
  expect("train.steps={", {"command line: \"train.steps={\"", "left open"});
  expect("train.steps=}", {"command line: \"train.steps=}\"", "not valid YAML"});
  expect("train.steps=", {"train.steps"});
  expect("train.steps.a=3", {"train.steps: expected a whole number", "found a map"});
  expect("run.out=a\x01", {"control character"});
  expect("run.out=\xFF", {"UTF-8"});
  std::string deep = "a";
  for (int i = 0; i < 100; ++i) deep += ".a";
  expect(deep + "=1", {"command line"});
}

}  // namespace
}  // namespace tetrad
