// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/loss.h"

namespace tetrad::cpu {

void cross_entropy(Threads& threads, const CrossEntropy& op);

}  // namespace tetrad::cpu
