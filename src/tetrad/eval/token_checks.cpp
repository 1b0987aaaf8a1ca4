// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/token_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <functional>
#include <map>
#include <set>

#include "tetrad/data/token_metadata.h"

namespace tetrad {
namespace {

/// Means by category, in the order of their names.
class Tally {
 public:
  void add(const std::string& category, bool correct) {
    Entry& entry = entries_[category];
    entry.correct += correct ? 1 : 0;
    ++entry.count;
  }
  std::vector<CheckResult> results(const std::string& name) const {
    std::vector<CheckResult> results;
    for (const auto& [category, entry] : entries_)
      results.push_back({fmt::format("{}: {}", name, category),
                         static_cast<double>(entry.correct) / static_cast<double>(entry.count), "accuracy",
                         entry.count});
    return results;
  }

 private:
  struct Entry {
    std::int64_t correct = 0, count = 0;
  };
  std::map<std::string, Entry> entries_;
};

/// The likeliest token after each token of a sequence.
std::vector<std::int32_t> predictions(const Score& score, std::size_t tokens) {
  const std::size_t vocab = score.logits.size() / tokens;
  std::vector<std::int32_t> result;
  for (std::size_t i = 0; i < tokens; ++i) {
    const auto row = std::span(score.logits).subspan(i * vocab, vocab);
    result.push_back(static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin()));
  }
  return result;
}

/// Inputs of a sequence and the token that follows the last of them.
struct Sequence {
  std::vector<std::int32_t> tokens;   //!< n + 1
  std::vector<std::int32_t> guesses;  //!< guesses[i] for tokens[i + 1]; n

  bool is_right(std::size_t position) const { return guesses[position - 1] == tokens[position]; }
};

using Grade = std::function<void(const Sequence&, Tally&)>;

char first_character(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  return begin == std::string::npos ? ' ' : text[begin];
}

Grade grade_text(const Tokenizer& tokenizer) {
  return [&tokenizer](const Sequence& sequence, Tally& tally) {
    constexpr std::size_t kShortestWord = 3;  //!< bytes of a token that says something about a name
    std::set<std::int32_t> seen;
    for (std::size_t i = 1; i < sequence.tokens.size(); ++i) {
      seen.insert(sequence.tokens[i - 1]);
      const std::string text = tokenizer.decode(std::span(&sequence.tokens[i], 1));
      const char first = first_character(text);
      if (std::string_view(")]}").find(first) != std::string_view::npos) {
        const std::string guess = tokenizer.decode(std::span(&sequence.guesses[i - 1], 1));
        tally.add("closing brackets", first_character(guess) == first);
      } else if (text.size() >= kShortestWord && seen.contains(sequence.tokens[i]) &&
                 (std::isalpha(static_cast<unsigned char>(first)) != 0 || first == '_')) {
        tally.add("names that stood before", sequence.is_right(i));
      }
    }
  };
}

std::int64_t number_at(const std::vector<std::int32_t>& tokens, std::size_t begin, std::size_t end) {
  std::int64_t number = 0;
  for (std::size_t i = begin; i < end; ++i) number = number * 10 + tokens[i];
  return number;
}

int carries(std::int64_t a, std::int64_t b) {
  int count = 0;
  for (std::int64_t carry = 0; a > 0 || b > 0; a /= 10, b /= 10) {
    carry = a % 10 + b % 10 + carry >= 10 ? 1 : 0;
    count += static_cast<int>(carry);
  }
  return count;
}

/// "a+b=c" and a newline, as data/synth.cpp writes them.
void grade_arithmetic(const Sequence& sequence, Tally& tally) {
  enum Sign : std::int32_t { plus = 10, equals = 11, newline = 12 };
  const auto& tokens = sequence.tokens;
  const auto find = [&](std::size_t from, Sign sign) {
    return static_cast<std::size_t>(
        std::find(tokens.begin() + static_cast<std::ptrdiff_t>(from), tokens.end(), sign) - tokens.begin());
  };
  for (std::size_t line = find(0, newline) + 1; line < tokens.size();) {
    const std::size_t sum = find(line, plus);
    const std::size_t answer = find(std::min(sum, tokens.size()), equals);
    const std::size_t end = find(std::min(answer, tokens.size()), newline);
    if (end >= tokens.size()) return;
    const int count = carries(number_at(tokens, line, sum), number_at(tokens, sum + 1, answer));
    bool right = true;
    for (std::size_t i = answer + 1; i <= end; ++i) right &= sequence.is_right(i);
    tally.add(fmt::format("{} carr{}", count, count == 1 ? "y" : "ies"), right);
    line = end + 1;
  }
}

/// Pairs, a mark, and questions: a key, whose value must follow.
void grade_recall(const Sequence& sequence, Tally& tally) {
  constexpr std::int32_t kBegin = 0;
  constexpr std::int32_t kQuestions = 1;
  std::map<std::int32_t, std::size_t> told;
  bool asking = false;
  bool complete = false;  //!< the episode's beginning is in the sequence
  for (std::size_t i = 0; i + 1 < sequence.tokens.size(); ++i) {
    const std::int32_t token = sequence.tokens[i];
    if (token == kBegin) {
      told.clear();
      asking = false;
      complete = true;
    } else if (token == kQuestions) {
      asking = true;
    } else if (complete) {
      const auto known = told.find(token);
      if (!asking) {
        told[token] = i;
      } else if (known != told.end()) {
        const auto distance = std::bit_ceil(i - known->second);
        tally.add(fmt::format("told up to {:>5} tokens ago", distance), sequence.is_right(i + 1));
      }
      ++i;  // its value
    }
  }
}

/// Nothing: there is nothing to check in such data.
Grade grade_of(const TokenSequences& data, const Tokenizer* tokenizer) {
  const auto& metadata = data.file().metadata();
  const std::string kind = metadata ? metadata->kind : "";
  if (kind == "arithmetic") return grade_arithmetic;
  if (kind == "recall") return grade_recall;
  if (kind.empty() && tokenizer != nullptr) return grade_text(*tokenizer);
  return {};
}

}  // namespace

std::vector<CheckResult> check_tokens(const std::string& name, const TokenSequences& data,
                                      const Tokenizer* tokenizer, std::int64_t sequences,
                                      const Scorer& scorer) {
  const Grade grade = grade_of(data, tokenizer);
  if (!grade) return {};
  Tally tally;
  const auto length = static_cast<std::size_t>(data.sequence());
  std::vector<std::int32_t> inputs(length);
  std::vector<std::int32_t> targets(length);
  for (std::int64_t i = 0; i < std::min(sequences, data.count()); ++i) {
    data.read(i, inputs, targets);
    Sequence sequence{inputs, predictions(scorer(inputs), length)};
    sequence.tokens.push_back(targets.back());
    grade(sequence, tally);
  }
  return tally.results(name);
}

}  // namespace tetrad
