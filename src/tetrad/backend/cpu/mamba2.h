// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/mamba2.h"

namespace tetrad::cpu {

void causal_conv(const CausalConvForward& op);
void causal_conv(const CausalConvBackward& op);
void scan(const ScanForward& op);
void scan(const ScanBackward& op);
void mamba2_step(const Mamba2Step& op);

}  // namespace tetrad::cpu
