// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/attention.h"

namespace tetrad::cpu {

void attention(Threads& threads, const AttentionForward& op);
void attention(Threads& threads, const AttentionBackward& op);
void attention(Threads& threads, const AttentionDecode& op);

}  // namespace tetrad::cpu
