// SPDX-License-Identifier: Apache-2.0
// What must fit together.

#include <gtest/gtest.h>

#include <limits>

#include "support/errors.h"
#include "tetrad/config/config.h"

namespace tetrad {
namespace {

using testing::expect_bad_input;

constexpr std::string_view kGood =
    "model: quickstart\n"
    "data: {sources: {a: x, b: y}}\n"
    "train: {steps: 10, batch: 8, sequence: 64, microbatch: 4}\n";

struct Contradiction {
  std::vector<std::string> overrides;
  std::vector<std::string> words;
};

TEST(Validate, AcceptsWhatIsGood) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"train.steps=0", "train.tokens=512"},
      {"train.microbatch=0"},
      {"train.microbatch=1", "train.sequence=16"},
      {"data.phases=[{until: 0.7, mix: {a: 1, b: 0}}, {until: 1, mix: {b: 2}}]"},
      {"precision.schedule=[{at: 0, forward: bf16}, {at: .5, backward: fp8}]"},
      {"precision.rht.size=128"},
      {"precision.operands.wgrad.x.hadamard=0"},
      {"schedule.warmup=0.5", "schedule.decay=0.5"},
      {"schedule.kind=cosine", "schedule.warmup=0.9"},
  };
  for (const auto& overrides : cases)
    EXPECT_NO_THROW(validate(parse_config(kGood, "good.yaml", overrides)))
        << (overrides.empty() ? "" : overrides[0]);
}

TEST(Validate, NamesTheKeyAndSaysWhatToDo) {
  const std::vector<Contradiction> cases = {
      {{"model.hidden=100"}, {"model.hidden is 100"}},
      {{"train.steps=0"}, {"set train.steps or train.tokens"}},
      {{"train.tokens=1e6"}, {"train.steps (10) and train.tokens (1000000)", "set one of them to 0"}},
      {{"train.steps=0", "train.tokens=511"}, {"train.tokens (511) is less than one step", "512"}},
      {{"train.steps=9223372036854775807"}, {"more than can be counted"}},
      {{"train.batch=0"}, {"train.batch is missing"}},
      {{"train.sequence=0"}, {"train.sequence is missing"}},
      {{"train.batch=4611686018427387904"}, {"train.batch (4611686018427387904)", "2^31"}},
      {{"train.microbatch=3"}, {"train.batch (8) is not a multiple of train.microbatch (3)"}},
      {{"train.microbatch=16"}, {"train.batch (8)", "train.microbatch (16)"}},
      {{"train.sequence=6", "train.microbatch=1"}, {"1 * 6 tokens", "multiple of 16"}},
      {{"train.sequence=16", "train.microbatch=1", "precision.rht.size=32"},
       {"precision.rht.size is 32", "1 * 16 tokens"}},
      {{"train.sequence=32", "train.microbatch=1", "precision.scale=eden"},
       {"precision.rht.size is 128", "1 * 32 tokens"}},
      {{"precision.rht.size=24"}, {"precision.rht.size is 24", "power of two"}},
      {{"precision.operands.fprop.x.hadamard=3"}, {"precision.operands.fprop.x.hadamard is 3"}},
      {{"precision.operands.wgrad.x.hadamard=128", "train.microbatch=1"},
       {"precision.operands.wgrad.x.hadamard is 128", "1 * 64 tokens"}},
      {{"precision.high_precision.match=['']"}, {"precision.high_precision.match", "empty"}},
      {{"precision.high_precision.fp8=['']"}, {"precision.high_precision.fp8", "empty"}},
      {{"precision.schedule=[{at: .5, forward: bf16}, {at: .5, backward: bf16}]"},
       {"precision.schedule[1].at is 0.5", "order"}},
      {{"precision.schedule=[{at: .5}]"}, {"precision.schedule[0] changes nothing"}},
      {{"data.sources.a.path="}, {"data.sources.a.path is missing"}},
      {{"data.phases=[{until: .5, mix: {a: 1}}]"}, {"data.phases end at 0.5", "until: 1"}},
      {{"data.phases=[{until: .5, mix: {a: 1}}, {until: .5, mix: {a: 1}}]"},
       {"data.phases[1].until is 0.5", "not above 0.5"}},
      {{"data.phases=[{until: 0, mix: {a: 1}}]"}, {"data.phases[0].until is 0"}},
      {{"data.phases=[{until: 1, mix: {c: 1}}]"}, {"data.phases[0].mix names \"c\"", "data.sources"}},
      {{"data.phases=[{until: 1, mix: {a: 0}}]"}, {"data.phases[0].mix", "sum to 0"}},
      {{"data.phases=[{until: 1, mix: {a: 1e308, b: 1e308}}]"}, {"data.phases[0].mix", "sum to inf"}},
      {{"data.phases=[{until: 1}]"}, {"data.phases[0].mix is empty"}},
      {{"train.checkpoint.enabled=false", "train.health.on_spike=rollback"},
       {"train.health asks for rollbacks", "train.checkpoint.enabled"}},
      {{"schedule.warmup=0.5", "schedule.decay=0.6"}, {"schedule.warmup (0.5)", "schedule.decay (0.6)"}},
  };
  for (const Contradiction& c : cases)
    expect_bad_input([&] { validate(parse_config(kGood, "good.yaml", c.overrides)); }, c.words,
                     c.overrides[0]);
  expect_bad_input(
      [] { validate(parse_config("model: quickstart\ntrain: {steps: 1, batch: 1, sequence: 16}", "x")); },
      {"data.sources is empty", "data.sources.code=data/code"}, "no sources");
}

/// Structs that were filled in by code are checked like files.
TEST(Validate, ChecksRangesOfStructs) {
  const Config good = parse_config(kGood, "good.yaml");
  Config config = good;
  config.optim.lr = std::numeric_limits<double>::quiet_NaN();
  expect_bad_input([&] { validate(config); }, {"optim.lr: expected a number above 0"}, "lr");
  config = good;
  config.precision.recipe = "fp2";
  expect_bad_input([&] { validate(config); }, {"precision.recipe: expected bf16"}, "recipe");
  config = good;
  config.train.batch = -8;
  expect_bad_input([&] { validate(config); }, {"train.batch: expected"}, "batch");
  config = good;
  config.train.checkpoint.keep = 1;
  expect_bad_input([&] { validate(config); }, {"train.checkpoint.keep", "at least 2"}, "keep");
}

}  // namespace
}  // namespace tetrad
