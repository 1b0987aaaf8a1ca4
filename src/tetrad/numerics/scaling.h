// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the scale of a block follows from its values.

#include <cstdint>

#include "tetrad/numerics/host_device.h"

namespace tetrad {

enum class Scaling : std::uint8_t {
  standard,  //!< the format's own: to nearest from the block maximum (NVFP4, FP8), rounded down (MXFP4)
  four_six,  //!< NVFP4: the better of two, which map the block maximum to 6 and to 4
  search,    //!< NVFP4: the best of those two and their four neighbours
  up,        //!< MXFP4: rounded up, so that nothing saturates
  eden,      //!< NVFP4: MS-EDEN, corrected by what rounding took from a rotated group, then drawn
};

/// Whether a scale is chosen by the errors that candidates leave.
TETRAD_HD constexpr bool is_choice(Scaling scaling) {
  return scaling == Scaling::four_six || scaling == Scaling::search;
}

/// Whether a scale follows from all values of its block, or of a group of blocks, not from the maximum alone.
TETRAD_HD constexpr bool depends_on_values(Scaling scaling) {
  return is_choice(scaling) || scaling == Scaling::eden;
}

}  // namespace tetrad
