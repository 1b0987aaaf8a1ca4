// SPDX-License-Identifier: Apache-2.0
#pragma once
// NVFP4 scales of MS-EDEN: what a block of 16 elements adds to its rotated group.

#include "tetrad/backend/cuda/common/words.h"
#include "tetrad/numerics/eden.h"

namespace tetrad::cuda {

TETRAD_HD inline nvfp4::Projection sum_of(const nvfp4::Projection& a, const nvfp4::Projection& b) {
  return {a.square + b.square, a.product + b.product};
}

/// One element after another.
TETRAD_HD inline nvfp4::Projection projection_of_block(const float* v, const nvfp4::BlockScale& scale,
                                                       const nvfp4::TensorScale& tensor) {
  const float value = E4m3::decode(scale.byte);
  nvfp4::Projection sum = {};
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < nvfp4::kBlock; ++i)
    sum = sum_of(sum, nvfp4::projection(v[i], scale.encode, value, tensor));
  return sum;
}

}  // namespace tetrad::cuda
