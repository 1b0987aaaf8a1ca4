// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/norm.h"

namespace tetrad::cpu {

void rms_norm(Threads& threads, const RmsNormForward& op);
void rms_norm(Threads& threads, const RmsNormBackward& op);
void gated_norm(Threads& threads, const GatedNormForward& op);
void gated_norm(Threads& threads, const GatedNormBackward& op);

}  // namespace tetrad::cpu
