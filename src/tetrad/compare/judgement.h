// SPDX-License-Identifier: Apache-2.0
#pragma once
// From the losses of all trials to a verdict on each arm, in numbers and in words.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/compare/outcome.h"

namespace tetrad {

/// A number of a trial that has ended; nothing: it has none.
using ValueOf = std::function<std::optional<double>(const TrialOutcome&)>;

/// The gaps of all arms to arms[reference], in the order of the arms. All arms are analysed together, by
/// blocks that have a value of every arm; one of which runs diverged, by its own pairs.
std::vector<ArmGap> compare_arms(const std::vector<ArmOutcome>& arms, std::size_t reference,
                                 const ValueOf& value_of, const Rules& rules);

/// The rules for all verdicts of a comparison at its present look.
Rules rules_of(const ComparePlan& plan);

/// Fills in gaps, windows, facets, verdicts and their texts, beside arms[reference].
void judge_arms(const Comparison& comparison, std::size_t reference, std::vector<ArmOutcome>& arms);

}  // namespace tetrad
