// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/activation.h"

namespace tetrad::cpu {

void activation(Threads& threads, const ActivationForward& op);
void activation(Threads& threads, const ActivationBackward& op);

}  // namespace tetrad::cpu
