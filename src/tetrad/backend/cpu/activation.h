// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/activation.h"

namespace tetrad::cpu {

void activation(const ActivationForward& op);
void activation(const ActivationBackward& op);

}  // namespace tetrad::cpu
