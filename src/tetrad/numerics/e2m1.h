// SPDX-License-Identifier: Apache-2.0
#pragma once
// E2M1, the element of NVFP4 and MXFP4: +-{0, .5, 1, 1.5, 2, 3, 4, 6}; bit 3 is the sign, bits 0-2 index that
// list.

#include "tetrad/numerics/minifloat.h"

namespace tetrad {

using E2m1 = Minifloat<2, 1, 1, 0x7, Specials::none, NegativeZero::dropped>;
static_assert(E2m1::kMax == 6.0f && E2m1::kMinSubnormal == 0.5f);

/// Two codes in a byte: the even element in the low nibble.
TETRAD_HD constexpr std::uint8_t pack_e2m1(std::uint32_t even, std::uint32_t odd) {
  return static_cast<std::uint8_t>(even | (odd << 4));
}
TETRAD_HD constexpr std::uint32_t unpack_e2m1_even(std::uint32_t byte) { return byte & 0xFu; }
TETRAD_HD constexpr std::uint32_t unpack_e2m1_odd(std::uint32_t byte) { return byte >> 4; }

}  // namespace tetrad
