// SPDX-License-Identifier: Apache-2.0
#pragma once
// Multiple-choice questions: a line of JSON each, {"question": …, "choices": […], "answer": index, letter or
// text}. The model's answer is the choice that it finds likeliest after the question.

#include <filesystem>
#include <string>
#include <vector>

#include "tetrad/eval/check.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

struct ChoiceQuestion {
  std::string question;
  std::vector<std::string> choices;
  std::size_t answer = 0;
};

/// A file of them.
struct Quiz {
  std::string name;  //!< the file's name without its ending
  std::vector<ChoiceQuestion> questions;
};

/// Throws Error (bad input) with the line's number.
Quiz read_questions(const std::filesystem::path& file);

/// Accuracy, accuracy with log-probabilities per byte of the choice, and calibration: the expected difference
/// between confidence and accuracy (ECE) over ten bins of confidence, which is the probability of the answer
/// among the choices.
std::vector<CheckResult> check_choices(const Quiz& quiz, const Tokenizer& tokenizer, const Scorer& scorer);

}  // namespace tetrad
