// SPDX-License-Identifier: Apache-2.0
#pragma once
// How much a model computes.

#include <cstdint>

#include "tetrad/model/config.h"
#include "tetrad/model/parameter_table.h"
#include "tetrad/model/recompute.h"

namespace tetrad {

/// Floating-point operations for one token, forward and backward (a multiplication and an addition are two).
double training_flops_per_token(const ModelConfig& config, std::int64_t sequence);

/// How many of them are computed a second time. What only passes over memory is in neither.
double recomputed_flops_per_token(const ModelConfig& config, std::int64_t sequence,
                                  const RecomputePlan& recompute);

}  // namespace tetrad
