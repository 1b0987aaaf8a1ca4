// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/rope.h"

namespace tetrad::cpu {

void rope(const Rope& op);

}  // namespace tetrad::cpu
