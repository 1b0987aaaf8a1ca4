// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks on held-out tokens: where the text itself says what must follow, does the model say it too?

#include <cstdint>
#include <string>
#include <vector>

#include "tetrad/data/dataset.h"
#include "tetrad/eval/check.h"

namespace tetrad {

/// What is checked depends on the data. Text: closing brackets, and tokens of a word that stood earlier in
/// the sequence. The arithmetic language: whole answers, by the number of carries. Associative recall:
/// answers, by how many tokens ago they were given. Other languages: nothing. Reads `sequences` at most.
std::vector<CheckResult> check_tokens(const std::string& name, const TokenSequences& data,
                                      const Tokenizer* tokenizer, std::int64_t sequences,
                                      const Scorer& scorer);

}  // namespace tetrad
