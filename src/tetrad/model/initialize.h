// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random initial weights: a function of the seed and of each parameter's name, not of threads or of the order
// in which parameters were made.

#include <cstdint>
#include <vector>

#include "tetrad/core/threads.h"
#include "tetrad/model/config.h"
#include "tetrad/model/parameter.h"

namespace tetrad {

/// Matrices are normal with config.init_std, those that write to the residual stream divided by sqrt(number
/// of blocks); norms are 1; Mamba-2's own parameters as their authors draw them (docs/architecture.md). Of a
/// shared matrix, the rows of this rank.
std::vector<float> initial_values(Threads& threads, const Parameter& parameter, const ModelConfig& config,
                                  std::uint64_t seed);

}  // namespace tetrad
