// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tetrad/ops/adamw.h"

namespace tetrad::cpu {

void adamw(const AdamWStep& op);
std::vector<double> squared_norms(std::span<const AdamWTensor> tensors);

}  // namespace tetrad::cpu
