// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/norm.h"

namespace tetrad::cpu {

void rms_norm(const RmsNormForward& op);
void rms_norm(const RmsNormBackward& op);
void gated_norm(const GatedNormForward& op);
void gated_norm(const GatedNormBackward& op);

}  // namespace tetrad::cpu
