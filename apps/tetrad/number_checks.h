// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which numbers an option takes, and what is said about others. CLI11's own ranges let NaN through, and do
// not say what was expected.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>

namespace tetrad::app {

/// `meaning` says what the number is for, where that is easily mistaken.
CLI::Validator whole_number(std::int64_t min, std::int64_t max = std::numeric_limits<std::int64_t>::max(),
                            const std::string& meaning = "");

/// A finite number above `min`.
CLI::Validator number_above(double min);

/// A finite number from `min` to `max`.
CLI::Validator number_between(double min, double max);

}  // namespace tetrad::app
