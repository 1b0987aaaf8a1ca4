// SPDX-License-Identifier: Apache-2.0
#pragma once
// ops/embedding.h on CUDA. The ids lie on the device, where nobody reads them twice: one outside the
// vocabulary gives a row of NaN.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/embedding.h"

namespace tetrad::cuda {

void embedding(Device& device, const EmbeddingForward& op);
void embedding(Device& device, const EmbeddingBackward& op);

}  // namespace tetrad::cuda
