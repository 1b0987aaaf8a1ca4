// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/attention.h"

namespace tetrad::cpu {

void attention(const AttentionForward& op);
void attention(const AttentionBackward& op);
void attention(const AttentionDecode& op);

}  // namespace tetrad::cpu
