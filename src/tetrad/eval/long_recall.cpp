// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/long_recall.h"

#include <fmt/format.h>

#include <algorithm>

namespace tetrad {
namespace {

using Tokens = std::vector<std::int32_t>;

/// A text of so many tokens with a fact in it, and the answer at its end.
struct Place {
  std::size_t length = 0;
  std::size_t percent = 0;  //!< share of the filler that is in front of the fact
};

/// Five digits, others for each trial and `variant`.
std::string code_of(std::int64_t trial, std::int64_t variant) {
  return fmt::format("{}", 10000 + (trial * 7919 + variant * 31337) % 90000);
}

void append(Tokens& text, const Tokens& more) { text.insert(text.end(), more.begin(), more.end()); }

/// Log-probability of `answer` after a text that told `told`, per token. Nothing if it does not fit.
std::optional<double> log_probability(const Tokens& filler, const Place& place, const std::string& told,
                                      const std::string& answer, const Tokenizer& tokenizer,
                                      const Scorer& scorer) {
  const Tokens fact = tokenizer.encode(fmt::format("\nThe code is {}.\n", told));
  const Tokens question = tokenizer.encode("\nThe code is ");
  const Tokens reply = tokenizer.encode(answer);
  const std::size_t taken = fact.size() + question.size() + reply.size();
  if (taken >= place.length) return std::nullopt;
  const std::size_t room = place.length - taken;
  const auto before = static_cast<std::ptrdiff_t>(room * place.percent / 100);
  Tokens text(filler.begin(), filler.begin() + before);
  append(text, fact);
  text.insert(text.end(), filler.begin() + before, filler.begin() + static_cast<std::ptrdiff_t>(room));
  append(text, question);
  append(text, reply);
  const Score score = scorer(text);
  double sum = 0;
  for (std::size_t i = text.size() - reply.size(); i < text.size(); ++i)
    sum += score.log_probabilities[i - 1];
  return sum / static_cast<double>(reply.size());
}

}  // namespace

std::vector<CheckResult> check_long_recall(const std::string& name, const TokenSequences& filler,
                                           const Tokenizer& tokenizer, std::int64_t trials,
                                           const Scorer& scorer) {
  const auto full = static_cast<std::size_t>(filler.sequence());
  Tokens inputs(full);
  Tokens targets(full);
  std::vector<CheckResult> results;
  for (const std::size_t length : {full / 4, full / 2, full}) {
    for (const std::size_t percent : {10, 50, 90}) {
      CheckResult result{fmt::format("{}: fact at {} % of {} tokens", name, percent, length), 0, "nats", 0};
      for (std::int64_t i = 0; i < std::min(trials, filler.count()); ++i) {
        filler.read(i, inputs, targets);
        const std::string code = code_of(i, 0);
        const auto told = log_probability(inputs, {length, percent}, code, code, tokenizer, scorer);
        const auto untold =
            log_probability(inputs, {length, percent}, code_of(i, 1), code, tokenizer, scorer);
        if (!told || !untold) continue;
        result.value += *told - *untold;
        ++result.count;
      }
      if (result.count == 0) continue;
      result.value /= static_cast<double>(result.count);
      results.push_back(result);
    }
  }
  return results;
}

}  // namespace tetrad
