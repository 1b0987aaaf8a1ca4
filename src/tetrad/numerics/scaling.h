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
};

/// Whether a scale is chosen by the errors that candidates leave.
TETRAD_HD constexpr bool is_choice(Scaling scaling) {
  return scaling == Scaling::four_six || scaling == Scaling::search;
}

}  // namespace tetrad
