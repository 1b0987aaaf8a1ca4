// SPDX-License-Identifier: Apache-2.0
// Long prompts are read in parts: the same results, and nobody waits for all of one.

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

#include "serve/engine_clients.h"
#include "serve/small_model.h"
#include "tetrad/eval/score.h"

namespace tetrad::testing::engine_test {
namespace {

constexpr std::int64_t kPart = 8;

Tokens long_prompt(std::size_t size) {
  Tokens prompt;
  for (std::size_t i = 0; i < size; ++i) prompt.push_back(static_cast<std::int32_t>(1 + i * i * 31 % 250));
  return prompt;
}

/// Scores of a prompt that the decoder reads in such parts.
std::vector<double> scores_in_parts(SmallModel& model, const Tokens& prompt, std::size_t part) {
  Pass pass = model.pass();
  Session session = model.decoder.start(static_cast<std::int64_t>(prompt.size()));
  std::vector<float> logits;
  for (std::size_t at = 0; at < prompt.size(); at += part) {
    const std::vector<float> more = model.decoder.extend(
        pass, session, std::span(prompt).subspan(at, std::min(part, prompt.size() - at)), false);
    logits.insert(logits.end(), more.begin(), more.end());
  }
  std::vector<double> scores;
  for (std::size_t i = 0; i + 1 < prompt.size(); ++i)
    scores.push_back(NextTokenLogProbabilities(std::span(logits).subspan(i * 256, 256))[prompt[i + 1]]);
  return scores;
}

std::vector<double> scores_of(const Generation& generation) {
  std::vector<double> scores;
  for (const TokenScore& score : generation.prompt_scores) scores.push_back(score.log_probability);
  return scores;
}

struct Model {
  const char* recipe;
  bool hybrid;
};

/// To the bit where rows of a pass stand for themselves. Where they do not, the parts are those that the
/// decoder would be given, whatever else is computed.
TEST(PromptParts, ScoresAreThoseOfTheSameParts) {
  for (const auto& [recipe, hybrid] : {Model{"bf16", false}, Model{"bf16", true}, Model{"fp8", false},
                                       Model{"nvfp4", false}, Model{"nvfp4", true}}) {
    for (const std::size_t size : {7U, 8U, 9U, 16U, 17U, 61U}) {
      SmallModel model(recipe, hybrid);
      const Tokens prompt = long_prompt(size);
      const std::vector<double> in_parts = scores_in_parts(model, prompt, kPart);
      const std::vector<double> whole = score(model.decoder, model.pass(), prompt).log_probabilities;
      Engine engine(model.decoder, model.pass(), {.batch = 4, .part = kPart});
      const auto results =
          engine.run({scoring(prompt), generating({5}, 30, {}), scoring(long_prompt(33))}, never);
      EXPECT_EQ(scores_of(results[0]), in_parts) << recipe << ", " << size;
      EXPECT_EQ(results[0].tokens.size(), 1U);
      EXPECT_EQ(results[1].tokens.size(), 30U);
      if (std::string_view(recipe) != "nvfp4") {  // whose scales are those of a part
        EXPECT_EQ(in_parts, whole) << recipe << ", " << size;
      }
    }
  }
}

/// tetrad score and the server's log probabilities are compared to the bit by those who evaluate models.
TEST(PromptParts, AreThoseThatScoreReads) {
  for (const char* recipe : {"bf16", "nvfp4"}) {
    for (const bool hybrid : {false, true}) {
      SmallModel model(recipe, hybrid);
      const Tokens prompt = long_prompt(2 * static_cast<std::size_t>(kPromptPart) + 44);
      Engine engine(model.decoder, model.pass(), {});
      EXPECT_EQ(scores_of(engine.run({scoring(prompt)}, never)[0]),
                score(model.decoder, model.pass(), prompt).log_probabilities)
          << recipe << ", hybrid: " << hybrid;
    }
  }
}

double mean_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

/// Scales for smaller parts are another rounding, and not a coarser one.
TEST(PromptParts, RoundAsWellInNvfp4) {
  for (const bool hybrid : {false, true}) {
    SmallModel exact("bf16", hybrid);
    SmallModel rounded("nvfp4", hybrid);
    const Tokens prompt = long_prompt(300);
    const std::vector<double> expected = score(exact.decoder, exact.pass(), prompt).log_probabilities;
    const double large =
        mean_distance(score(rounded.decoder, rounded.pass(), prompt).log_probabilities, expected);
    const double small = mean_distance(scores_in_parts(rounded, prompt, kPart), expected);
    EXPECT_GT(large, 0.01) << "it rounds";
    EXPECT_LT(small, 1.1 * large) << "hybrid: " << hybrid;
  }
}

TEST(PromptParts, ContinuationsDoNotDependOnThem) {
  for (const bool hybrid : {false, true}) {
    SmallModel model("bf16", hybrid);
    const SamplingOptions sampling{.temperature = 0.8, .seed = 3};
    std::vector<Tokens> results;
    for (const std::int64_t part : {3, 8, 1000}) {
      Engine engine(model.decoder, model.pass(), {.part = part});
      results.push_back(engine.run({generating(long_prompt(50), 20, sampling)}, never)[0].tokens);
      const EngineFigures figures = engine.figures();
      EXPECT_EQ(figures.prompt_tokens, 50);
      EXPECT_EQ(figures.generated_tokens, 20);
      EXPECT_EQ(figures.rounds, (50 + part - 1) / part + 19);
      EXPECT_EQ(figures.waiting, 0);
    }
    EXPECT_EQ(results[0], results[2]);
    EXPECT_EQ(results[1], results[2]);
  }
}

/// Rounds from when all wait to the first token of a task.
class FirstToken {
 public:
  GenerationTask watch(const Engine& engine, GenerationTask task) {
    task.is_enough = [this, &engine](std::span<const std::int32_t> tokens) {
      if (tokens.size() == 1) round = engine.figures().rounds;
      return false;
    };
    return task;
  }
  std::atomic<std::int64_t> round = -1;
};

TEST(PromptParts, AShortRequestDoesNotWaitForALongPrompt) {
  for (const char* recipe : {"bf16", "nvfp4"}) {
    SmallModel model(recipe);
    Engine engine(model.decoder, model.pass(), {.batch = 4, .part = kPart});
    FirstToken of_long, of_short;
    Failure failures[3] = {Kind::failed, Kind::failed, Kind::failed};
    {
      AtOnce clients(engine);
      clients.add({of_long.watch(engine, generating(long_prompt(100 * kPart), 1, {}))}, failures[0]);
      clients.add({of_short.watch(engine, generating({1, 2, 3}, 5, {}))}, failures[1]);
    }
    EXPECT_LE(of_short.round, 3) << recipe;
    EXPECT_GE(of_long.round, 100) << recipe << ": a part of it at a time";
    EXPECT_LE(of_long.round, 110) << recipe << ": but it is not held up either";
    EXPECT_EQ(failures[0], std::nullopt);
    EXPECT_EQ(failures[1], std::nullopt);
  }
}

/// Long prompts take turns, and short ones that keep coming do not starve them.
TEST(PromptParts, LongPromptsTakeTurns) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {.batch = 8, .part = kPart});
  FirstToken of_longest, of_long;
  Failure failures[3] = {Kind::failed, Kind::failed, Kind::failed};
  std::atomic<int> shorts = 0;
  GenerationTask brief = generating({1, 2}, 1, {});
  brief.is_enough = [&](std::span<const std::int32_t>) {
    ++shorts;
    return true;
  };
  {
    AtOnce clients(engine);
    clients.add({of_longest.watch(engine, generating(long_prompt(60 * kPart), 1, {}))}, failures[0]);
    clients.add({of_long.watch(engine, generating(long_prompt(3 * kPart), 1, {}))}, failures[1]);
    clients.add(std::vector<GenerationTask>(400, brief), failures[2]);
  }
  EXPECT_LE(of_long.round, 20);
  EXPECT_LE(of_longest.round, 2 * 63 + 10) << "one round in two at least";
  EXPECT_EQ(shorts, 400);
  for (const Failure& failure : failures) EXPECT_EQ(failure, std::nullopt);
}

}  // namespace
}  // namespace tetrad::testing::engine_test
