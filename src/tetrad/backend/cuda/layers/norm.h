// SPDX-License-Identifier: Apache-2.0
#pragma once
// ops/norm.h on CUDA.

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/norm.h"

namespace tetrad::cuda {

/// What a block's threads can hold of a row: more, where they get eight values at a time.
std::int64_t widest_row(const RmsNormForward& op);
std::int64_t widest_row(const RmsNormBackward& op);

void rms_norm(Device& device, const RmsNormForward& op);
void rms_norm(Device& device, const RmsNormBackward& op);
void gated_norm(Device& device, const GatedNormForward& op);
void gated_norm(Device& device, const GatedNormBackward& op);

}  // namespace tetrad::cuda
