// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/embedding.h"

namespace tetrad::cpu {

void embedding(Threads& threads, const EmbeddingForward& op);
void embedding(Threads& threads, const EmbeddingBackward& op);

}  // namespace tetrad::cpu
