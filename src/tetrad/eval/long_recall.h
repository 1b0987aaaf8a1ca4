// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fact in the middle of other text, and a question about it at the end.

#include <cstdint>
#include <string>
#include <vector>

#include "tetrad/data/dataset.h"
#include "tetrad/eval/check.h"

namespace tetrad {

/// Nats by which each token of the right answer is likelier than after a text that tells another one: 0 for a
/// model that does not look back. By the length of the text (a quarter, a half and all of the sequence that
/// `filler` is cut into) and by the place of the fact, in percent of it. `trials` texts each, at most;
/// nothing for texts that are too short.
std::vector<CheckResult> check_long_recall(const std::string& name, const TokenSequences& filler,
                                           const Tokenizer& tokenizer, std::int64_t trials,
                                           const Scorer& scorer);

}  // namespace tetrad
