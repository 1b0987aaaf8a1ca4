// SPDX-License-Identifier: Apache-2.0
#pragma once
// FP8: E4M3 elements with f32 scales, per 1x128 or 128x128 block or per tensor, computed from the current
// values.

#include <limits>

#include "tetrad/numerics/e4m3.h"

namespace tetrad::fp8 {

inline constexpr int kBlock = 128;

struct BlockScale {
  float decode;  //!< stored: 1 / encode
  float encode;  //!< 448 / amax, at most FLT_MAX; 1 for a block of zeros
};

TETRAD_HD constexpr BlockScale block_scale(float amax) {
  constexpr float kFloatMax = std::numeric_limits<float>::max();
  const float ratio = E4m3::kMax / (amax > 0.0f ? amax : E4m3::kMax);
  const float encode = ratio < kFloatMax ? ratio : kFloatMax;
  return {1.0f / encode, encode};
}

TETRAD_HD constexpr float decode(std::uint32_t code, float scale) { return E4m3::decode(code) * scale; }

}  // namespace tetrad::fp8
