// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "tetrad/core/threads.h"
#include "tetrad/ops/deviation.h"

namespace tetrad::cpu {

std::vector<DeviationSums> deviations(Threads& threads, std::span<const DeviationTensor> tensors);

}  // namespace tetrad::cpu
