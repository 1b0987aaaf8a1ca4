// SPDX-License-Identifier: Apache-2.0
#pragma once
// E5M2: the wide-range FP8 format. Largest 57344; infinity 0x7C, NaN 0x7D-0x7F. The cast saturates.

#include "tetrad/numerics/minifloat.h"

namespace tetrad {

using E5m2 = Minifloat<5, 2, 15, 0x7B, Specials::inf_and_nan, NegativeZero::kept>;
static_assert(E5m2::kMax == 57344.0f && E5m2::kMinSubnormal == 0x1p-16f);

}  // namespace tetrad
