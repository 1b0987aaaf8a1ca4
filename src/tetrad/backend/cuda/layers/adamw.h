// SPDX-License-Identifier: Apache-2.0
#pragma once
// ops/adamw.h on CUDA: all tensors in one launch.

#include <span>
#include <vector>
#include "tetrad/backend/cuda/common/device.h"

#include "tetrad/ops/adamw.h"

namespace tetrad::cuda {

void adamw(Device& device, const AdamWStep& op);
std::vector<double> squared_norms(Device& device, std::span<const AdamWTensor> tensors);

}  // namespace tetrad::cuda
