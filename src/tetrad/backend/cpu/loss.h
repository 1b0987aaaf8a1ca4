// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/backend/cpu/product_kernel.h"
#include "tetrad/core/threads.h"
#include "tetrad/ops/loss.h"

namespace tetrad::cpu {

void cross_entropy(Threads& threads, ProductKernel kernel, const CrossEntropy& op);

}  // namespace tetrad::cpu
