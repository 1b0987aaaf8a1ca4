// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks of what a model can do, beyond its loss.

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "tetrad/eval/score.h"

namespace tetrad {

struct CheckResult {
  std::string name;  //!< "arithmetic, 2 carries"
  double value = 0;
  std::string unit;        //!< accuracy, ECE, nats
  std::int64_t count = 0;  //!< questions that it is the mean of
};

/// {name, value, unit, count}.
nlohmann::json json_of(const CheckResult& check);

/// What the model makes of a sequence.
using Scorer = std::function<Score(std::span<const std::int32_t> tokens)>;

}  // namespace tetrad
