// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums and copies of whole matrices.

#include "tetrad/core/matrix.h"

namespace tetrad {

/// sum = a + b, of equal shapes; `sum` may be `a`. BF16 or f32; the addition is f32.
struct Add {
  MatrixView a, b;
  MutableMatrixView sum;
};

/// Copies, rounding to nearest where the output is narrower. f32 or BF16 on either side.
struct Cast {
  MatrixView in;
  MutableMatrixView out;
};

}  // namespace tetrad
