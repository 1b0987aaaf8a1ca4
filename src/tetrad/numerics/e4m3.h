// SPDX-License-Identifier: Apache-2.0
#pragma once
// E4M3 ("fn"): FP8 elements and NVFP4 block scales. Largest 448, smallest 2^-9, no infinity, NaN = 0x7F and
// 0xFF. The cast saturates: without that 465 becomes NaN, and one NaN scale byte destroys a checkpoint.

#include "tetrad/numerics/minifloat.h"

namespace tetrad {

using E4m3 = Minifloat<4, 3, 7, 0x7E, Specials::nan_only, NegativeZero::kept>;
static_assert(E4m3::kMax == 448.0f && E4m3::kMinSubnormal == 0x1p-9f);

}  // namespace tetrad
