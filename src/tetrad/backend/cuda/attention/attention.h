// SPDX-License-Identifier: Apache-2.0
#pragma once
// ops/attention.h on CUDA.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/attention.h"

namespace tetrad::cuda {

void attention(Device& device, const AttentionForward& op);
void attention(Device& device, const AttentionBackward& op);
void attention(Device& device, const AttentionDecode& op);

/// See Backend.
bool use_attention_engine(Device& device, AttentionEngine engine, const AttentionShape& shape);

}  // namespace tetrad::cuda
