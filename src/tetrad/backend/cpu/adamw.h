// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tetrad/core/threads.h"
#include "tetrad/ops/adamw.h"

namespace tetrad::cpu {

void adamw(Threads& threads, const AdamWStep& op);
std::vector<double> squared_norms(Threads& threads, std::span<const AdamWTensor> tensors);

}  // namespace tetrad::cpu
