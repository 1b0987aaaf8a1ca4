// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/rope.h"

namespace tetrad::cpu {

void rope(Threads& threads, const Rope& op);

}  // namespace tetrad::cpu
