// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/elementwise.h"

namespace tetrad::cpu {

void add(Threads& threads, const Add& op);
void cast(Threads& threads, const Cast& op);

}  // namespace tetrad::cpu
