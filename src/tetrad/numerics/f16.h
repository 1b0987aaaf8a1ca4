// SPDX-License-Identifier: Apache-2.0
#pragma once
// IEEE half precision. Tetrad reads it from files and never computes in it, so only the decoder is used.

#include "tetrad/numerics/minifloat.h"

namespace tetrad {

using F16 = Minifloat<5, 10, 15, 0x7BFF, Specials::inf_and_nan, NegativeZero::kept>;
static_assert(F16::kMax == 65504.0f && F16::kMinSubnormal == 0x1p-24f);

}  // namespace tetrad
