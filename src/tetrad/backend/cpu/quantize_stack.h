// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several tensors that lie in one matrix, each quantized as it would be alone (QuantizeOptions::stack).

#include "tetrad/core/threads.h"
#include "tetrad/ops/quantize.h"

namespace tetrad::cpu {

QuantStats quantize_stack(Threads& threads, const MatrixView& x, const QuantSpec& spec,
                          const QuantizeOptions& options, QuantizedTensor& out);

}  // namespace tetrad::cpu
