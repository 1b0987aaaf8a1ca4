// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/quantize.h"

namespace tetrad::cpu {

QuantStats quantize(Threads& threads, const MatrixView& x, const QuantSpec& spec,
                    const QuantizeOptions& options, QuantizedTensor& out);

}  // namespace tetrad::cpu
