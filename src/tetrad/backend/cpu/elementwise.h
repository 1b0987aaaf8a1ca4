// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/elementwise.h"

namespace tetrad::cpu {

void add(const Add& op);
void cast(const Cast& op);

}  // namespace tetrad::cpu
