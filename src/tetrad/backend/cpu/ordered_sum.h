// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/ordered_sum.h"

namespace tetrad::cpu {

void ordered_sum(Threads& threads, const OrderedSum& op);

}  // namespace tetrad::cpu
