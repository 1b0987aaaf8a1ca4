// SPDX-License-Identifier: Apache-2.0
// Checks are given models that are known: what they find must be what was put in.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/errors.h"
#include "support/files.h"
#include "tetrad/data/token_file.h"
#include "tetrad/eval/choices.h"
#include "tetrad/eval/long_recall.h"
#include "tetrad/eval/token_checks.h"

namespace tetrad::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

/// A model that predicts after each position what `next` says, with the log-probability that `next` says.
Scorer model_of(std::int64_t vocab, const std::function<std::int32_t(std::span<const std::int32_t>)>& next) {
  return [=](std::span<const std::int32_t> tokens) {
    Score score;
    score.logits.assign(tokens.size() * static_cast<std::size_t>(vocab), 0);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int32_t guess = next(tokens.first(i + 1));
      score.logits[i * static_cast<std::size_t>(vocab) + static_cast<std::size_t>(guess)] = 10;
      if (i + 1 < tokens.size()) score.log_probabilities.push_back(guess == tokens[i + 1] ? -0.5 : -4);
    }
    return score;
  };
}

/// A token file with these tokens.
TokenSequences write_tokens(const TemporaryFolder& folder, const Tokens& tokens, std::int64_t vocab,
                            std::int64_t sequence, const std::string& kind) {
  TokenFileWriter writer(folder.file("tokens"), vocab);
  writer.append(tokens);
  writer.end_document();
  TokenMetadata metadata;
  metadata.kind = kind;
  if (!kind.empty()) metadata.entropy = 1;
  writer.commit(metadata);
  return TokenSequences(folder.file("tokens"), sequence, "tokens");
}

std::map<std::string, CheckResult> by_name(const std::vector<CheckResult>& results) {
  std::map<std::string, CheckResult> map;
  for (const CheckResult& result : results) map[result.name] = result;
  return map;
}

Tokens bytes_of(std::string_view text) { return ByteTokenizer().encode(text); }

TEST(Choices, AreReadInTheirCommonForms) {
  const TemporaryFolder folder;
  write_file(folder.file("q.jsonl"),
             "{\"question\": \"2+2\", \"choices\": [\"3\", \"4\"], \"answer\": 1}\n\n"
             "{\"question\": \"q\", \"choices\": [\"yes\", \"no\"], \"answer\": \"no\"}\n"
             "{\"question\": \"q\", \"choices\": [\"yes\", \"no\"], \"answer\": \"A\", \"more\": 1}\n");
  const std::vector<ChoiceQuestion> questions = read_questions(folder.file("q.jsonl")).questions;
  ASSERT_EQ(questions.size(), 3U);
  EXPECT_EQ(questions[0].answer, 1U);
  EXPECT_EQ(questions[1].answer, 1U);
  EXPECT_EQ(questions[2].answer, 0U);
}

TEST(Choices, WhatMakesNoSenseIsRefusedWithItsLine) {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& line, const std::vector<std::string>& words) {
    write_file(folder.file("q.jsonl"), line + "\n");
    expect_bad_input([&] { read_questions(folder.file("q.jsonl")); }, words, line);
  };
  refuse(R"({"question": "q", "choices": ["a", "b"], "answer": 2})", {"q.jsonl:1", "answer"});
  refuse(R"({"question": "q", "choices": ["a", "b"], "answer": 0.5})", {"answer"});
  refuse(R"({"question": "q", "choices": ["a", "b"], "answer": "c"})", {"answer"});
  refuse(R"({"question": "q", "choices": ["a"], "answer": 0})", {"choices"});
  refuse(R"({"question": "q", "choices": ["a", ""], "answer": 0})", {"empty"});
  refuse(R"({"question": 1, "choices": ["a", "b"], "answer": 0})", {"question"});
  refuse("[1", {"q.jsonl:1"});
  refuse("", {"no questions"});
  expect_bad_input([] { read_questions("/nonexistent"); }, {"cannot read"});
}

TEST(Choices, AccuracyAndCalibrationWorkedOutByHand) {
  // The model expects an x after anything.
  const Scorer model =
      model_of(256, [](std::span<const std::int32_t>) { return static_cast<std::int32_t>('x'); });
  // "xx" costs 2 * 0.5 and its space 4; "yy" costs 2 * 4 and its space; the longer "xxxx" costs 2, less per
  // byte.
  const std::vector<ChoiceQuestion> questions = {
      {"q", {"xx", "yy"}, 0}, {"q", {"xx", "yy"}, 1}, {"q", {"xx", "xxxx"}, 1}};
  const auto results = by_name(check_choices({"quiz", questions}, ByteTokenizer(), model));
  EXPECT_NEAR(results.at("quiz").value, 1.0 / 3, 1e-12);
  EXPECT_NEAR(results.at("quiz, per byte").value, 2.0 / 3, 1e-12);
  // Confidences: 1 / (1 + exp(-7)) twice, both in the last bin, once right; 1 / (1 + exp(-1)), wrong.
  const double sure = 1 / (1 + std::exp(-7.0));
  const double less = 1 / (1 + std::exp(-1.0));
  EXPECT_NEAR(results.at("quiz, calibration").value, (std::abs(2 * sure - 1) + less) / 3, 1e-12);
  EXPECT_EQ(results.at("quiz").count, 3);
}

TEST(TokenChecks, ArithmeticByCarries) {
  // 12 is a newline, 10 '+', 11 '='. Sums without a carry, with one and with two.
  const Tokens lines = {12, 2, 1,  10, 3,  11, 2, 4, 12, 5, 10, 6, 11, 1, 1, 12,
                        9,  9, 10, 1,  11, 1,  0, 0, 12, 4, 10, 4, 11, 8, 12};
  const TemporaryFolder folder;
  const auto length = static_cast<std::int64_t>(lines.size()) - 1;
  const TokenSequences data = write_tokens(folder, lines, 13, length, "arithmetic");
  const auto peek = [&](std::size_t position) { return lines[std::min(position, lines.size() - 1)]; };
  const Scorer right = model_of(13, [&](std::span<const std::int32_t> seen) { return peek(seen.size()); });
  for (const CheckResult& result : check_tokens("sums", data, nullptr, 10, right))
    EXPECT_EQ(result.value, 1) << result.name;
  // A model that never writes a 0.
  const Scorer wrong = model_of(
      13, [&](std::span<const std::int32_t> seen) { return peek(seen.size()) == 0 ? 1 : peek(seen.size()); });
  const auto results = by_name(check_tokens("sums", data, nullptr, 10, wrong));
  EXPECT_EQ(results.at("sums: 0 carries").value, 1);
  EXPECT_EQ(results.at("sums: 0 carries").count, 2);
  EXPECT_EQ(results.at("sums: 1 carry").value, 1);
  EXPECT_EQ(results.at("sums: 2 carries").value, 0);
}

TEST(TokenChecks, RecallByDistance) {
  // Pairs 2 5, 3 6, 4 7; questions for 4 (three tokens ago) and 2 (nine tokens ago).
  const Tokens episode = {0, 2, 5, 3, 6, 4, 7, 1, 4, 7, 2, 5};
  const TemporaryFolder folder;
  const TokenSequences data = write_tokens(folder, episode, 8, 11, "recall");
  // A model that only knows the last pair.
  const Scorer forgetful = model_of(8, [](std::span<const std::int32_t>) { return 7; });
  const auto results = by_name(check_tokens("pairs", data, nullptr, 1, forgetful));
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results.at("pairs: told up to     4 tokens ago").value, 1);
  EXPECT_EQ(results.at("pairs: told up to    16 tokens ago").value, 0);
}

TEST(TokenChecks, BracketsAndNames) {
  const Tokens text = bytes_of("f(a)[b]{c}(d)");
  const TemporaryFolder folder;
  const TokenSequences data = write_tokens(folder, text, 256, static_cast<std::int64_t>(text.size()) - 1, "");
  const ByteTokenizer bytes;
  const Scorer round =
      model_of(256, [](std::span<const std::int32_t>) { return static_cast<std::int32_t>(')'); });
  const auto results = by_name(check_tokens("code", data, &bytes, 1, round));
  EXPECT_EQ(results.at("code: closing brackets").count, 4);
  EXPECT_EQ(results.at("code: closing brackets").value, 0.5);
  EXPECT_TRUE(
      check_tokens("code", data, nullptr, 1, round).empty());  // nobody knows what the tokens stand for
}

TEST(LongRecall, FindsWhetherAModelLooksBack) {
  const TemporaryFolder folder;
  const TokenSequences data = write_tokens(folder, Tokens(1000, 'z'), 256, 100, "");
  const ByteTokenizer bytes;
  const Scorer blind =
      model_of(256, [](std::span<const std::int32_t>) { return static_cast<std::int32_t>('7'); });
  for (const CheckResult& result : check_long_recall("text", data, bytes, 3, blind))
    EXPECT_EQ(result.value, 0);
  // Copies what followed the same five bytes before; the answer's digits cost 0.5 instead of 4 nats each.
  const Scorer copying = model_of(256, [](std::span<const std::int32_t> seen) {
    constexpr std::size_t kContext = 5;
    for (std::size_t i = seen.size(); i-- > kContext;)
      if (i < seen.size() - 1 && std::equal(seen.end() - kContext, seen.end(),
                                            seen.begin() + static_cast<std::ptrdiff_t>(i + 1 - kContext)))
        return seen[i + 1];
    return static_cast<std::int32_t>('z');
  });
  const std::vector<CheckResult> results = check_long_recall("text", data, bytes, 3, copying);
  EXPECT_EQ(results.size(), 6U);  // a quarter of 100 tokens has no room for fact and question
  for (const CheckResult& result : results) EXPECT_GT(result.value, 2) << result.name;
}

}  // namespace
}  // namespace tetrad::testing
