// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"

namespace tetrad::testing {

/// For work that is too little to share out.
inline Threads& one_thread() {
  static Threads threads(1);
  return threads;
}

}  // namespace tetrad::testing
