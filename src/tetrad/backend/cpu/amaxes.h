// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/amax.h"

namespace tetrad::cpu {

void amaxes(Threads& threads, const Amaxes& op);

}  // namespace tetrad::cpu
