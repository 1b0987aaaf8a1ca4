// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/embedding.h"

namespace tetrad::cpu {

void embedding(const EmbeddingForward& op);
void embedding(const EmbeddingBackward& op);

}  // namespace tetrad::cpu
