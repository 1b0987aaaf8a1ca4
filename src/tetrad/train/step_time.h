// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tetrad/ops/backend.h"
#include "tetrad/train/config.h"

namespace tetrad {

/// Seconds of an optimizer step: a few seconds of training with random weights on random tokens, at the
/// precision that the run begins with. Takes the memory that the run would. Nothing if a single sequence
/// would take too long on a CPU.
std::optional<double> measure_step_seconds(const Config& config, Backend& backend);

}  // namespace tetrad
