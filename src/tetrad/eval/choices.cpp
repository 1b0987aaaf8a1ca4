// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tetrad/core/error.h"
#include "tetrad/io/strict_json.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostChoices = 26;
constexpr JsonLimits kLineLimits{.bytes = 1 << 20, .depth = 4};

/// An index from 0, a letter, or one of the choices.
std::size_t find_answer(const Json& answer, const std::vector<std::string>& choices,
                        const std::string& where) {
  if (answer.is_number())
    return static_cast<std::size_t>(
        checked_integer(answer, where + ": answer", 0, static_cast<std::int64_t>(choices.size()) - 1));
  TETRAD_CHECK(answer.is_string(), "{}: answer must be an index from 0, a letter or one of the choices",
               where);
  const auto text = answer.get<std::string>();
  if (const auto found = std::ranges::find(choices, text); found != choices.end())
    return static_cast<std::size_t>(found - choices.begin());
  const std::size_t letter = text.size() == 1 ? static_cast<std::size_t>(text[0] - 'A') : choices.size();
  TETRAD_CHECK(letter < choices.size(), "{}: the answer is none of the {} choices", where, choices.size());
  return letter;
}

ChoiceQuestion read_question(const std::string& line, const std::string& where) {
  const Json json = parse_strict_json(line, where, kLineLimits);
  const Json& question = member_of(json, "question");
  const Json& choices = member_of(json, "choices");
  TETRAD_CHECK(question.is_string(), "{}: question must be a text", where);
  TETRAD_CHECK(choices.is_array() && choices.size() >= 2 && choices.size() <= kMostChoices,
               "{}: choices must be a list of 2 to {} texts", where, kMostChoices);
  ChoiceQuestion result{question.get<std::string>(), {}, 0};
  for (const Json& choice : choices) {
    TETRAD_CHECK(choice.is_string() && !choice.get_ref<const std::string&>().empty(),
                 "{}: choices must be texts, none of them empty", where);
    result.choices.push_back(choice.get<std::string>());
  }
  result.answer = find_answer(member_of(json, "answer"), result.choices, where);
  return result;
}

/// Log-probability of a choice after its question. The tokens of both together are cut where those of the
/// question end.
double log_probability(const std::string& question, const std::string& choice, const Tokenizer& tokenizer,
                       const Scorer& scorer) {
  const bool spaced = !question.empty() && std::isspace(static_cast<unsigned char>(question.back())) != 0;
  const std::string context = question + (spaced ? "" : " ");
  const std::vector<std::int32_t> tokens = tokenizer.encode(context + choice);
  // A tokenizer joins a space with the word behind it, so the space belongs to the choice.
  const std::size_t begin = std::max<std::size_t>(1, tokenizer.encode(question).size());
  const Score score = scorer(tokens);
  double sum = 0;
  for (std::size_t i = begin; i < tokens.size(); ++i) sum += score.log_probabilities[i - 1];
  return sum;
}

std::size_t likeliest(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
}

/// Confidence and success in ten bins.
class Calibration {
 public:
  void add(double confidence, bool correct) {
    Bin& bin = bins_[std::min<std::size_t>(kBins - 1, static_cast<std::size_t>(confidence * kBins))];
    bin.confidence += confidence;
    bin.correct += correct ? 1 : 0;
    ++count_;
  }
  double error() const {
    double sum = 0;
    for (const Bin& bin : bins_) sum += std::abs(bin.confidence - bin.correct);
    return sum / count_;
  }

 private:
  static constexpr std::size_t kBins = 10;
  struct Bin {
    double confidence = 0, correct = 0;  //!< sums
  };
  std::array<Bin, kBins> bins_;
  double count_ = 0;
};

}  // namespace

Quiz read_questions(const std::filesystem::path& file) {
  std::ifstream in(file);
  TETRAD_CHECK(in.good(), "cannot read {}", file.string());
  Quiz quiz{file.stem().string(), {}};
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty())
      quiz.questions.push_back(read_question(line, fmt::format("{}:{}", file.string(), number)));
  }
  TETRAD_CHECK(!quiz.questions.empty(), "{} has no questions", file.string());
  return quiz;
}

std::vector<CheckResult> check_choices(const Quiz& quiz, const Tokenizer& tokenizer, const Scorer& scorer) {
  double correct = 0;
  double correct_per_byte = 0;
  Calibration calibration;
  for (const ChoiceQuestion& question : quiz.questions) {
    std::vector<double> sums;
    std::vector<double> per_byte;
    for (const std::string& choice : question.choices) {
      sums.push_back(log_probability(question.question, choice, tokenizer, scorer));
      per_byte.push_back(sums.back() / static_cast<double>(choice.size()));
    }
    const std::size_t chosen = likeliest(sums);
    correct += chosen == question.answer ? 1 : 0;
    correct_per_byte += likeliest(per_byte) == question.answer ? 1 : 0;
    double total = 0;
    for (const double sum : sums) total += std::exp(sum - sums[chosen]);
    calibration.add(1 / total, chosen == question.answer);
  }
  const auto count = static_cast<std::int64_t>(quiz.questions.size());
  const auto mean = [&](double sum) { return sum / static_cast<double>(count); };
  return {{quiz.name, mean(correct), "accuracy", count},
          {quiz.name + ", per byte", mean(correct_per_byte), "accuracy", count},
          {quiz.name + ", calibration", calibration.error(), "ECE", count}};
}

}  // namespace tetrad
