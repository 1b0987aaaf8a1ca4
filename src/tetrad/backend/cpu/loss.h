// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/loss.h"

namespace tetrad::cpu {

void cross_entropy(const CrossEntropy& op);

}  // namespace tetrad::cpu
