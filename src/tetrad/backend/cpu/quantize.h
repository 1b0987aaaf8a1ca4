// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/ops/quantize.h"

namespace tetrad::cpu {

QuantStats quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                    QuantizedTensor& out);

}  // namespace tetrad::cpu
