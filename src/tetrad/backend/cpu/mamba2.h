// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/mamba2.h"

namespace tetrad::cpu {

void causal_conv(Threads& threads, const CausalConvForward& op);
void causal_conv(Threads& threads, const CausalConvBackward& op);
void scan(Threads& threads, const ScanForward& op);
void scan(Threads& threads, const ScanBackward& op);
void mamba2_step(Threads& threads, const Mamba2Step& op);

}  // namespace tetrad::cpu
