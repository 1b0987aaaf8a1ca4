// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/display.h"

namespace tetrad::app {

/// stderr. On a terminal a line of progress replaces the one before it; elsewhere each is a line of its own.
Display& terminal();

}  // namespace tetrad::app
