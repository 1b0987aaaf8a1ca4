// SPDX-License-Identifier: Apache-2.0
#include "number_checks.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <utility>

namespace tetrad::app {
namespace {

/// Refuses what cannot be read as a T, or is not `accepted`.
template <typename T>
CLI::Validator validator(std::function<bool(T)> accepted, const std::string& expected) {
  return {[accepted = std::move(accepted), expected](std::string& text) {
            T value{};
            if (CLI::detail::lexical_cast(text, value) && accepted(value)) return std::string();
            return fmt::format("{:?} is not {}", text, expected);
          },
          ""};
}

}  // namespace

CLI::Validator whole_number(std::int64_t min, std::int64_t max, const std::string& meaning) {
  const std::string range = max == std::numeric_limits<std::int64_t>::max()
                                ? fmt::format("of at least {}", min)
                                : fmt::format("from {} to {}", min, max);
  return validator<std::int64_t>(
      [min, max](std::int64_t value) { return value >= min && value <= max; },
      fmt::format("a whole number {}{}", range, meaning.empty() ? "" : ": " + meaning));
}

CLI::Validator number_above(double min) {
  return validator<double>([min](double value) { return std::isfinite(value) && value > min; },
                           fmt::format("a number above {}", min));
}

CLI::Validator number_between(double min, double max) {
  return validator<double>([min, max](double value) { return value >= min && value <= max; },
                           fmt::format("a number from {} to {}", min, max));
}

}  // namespace tetrad::app
