// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory of the machine that a GPU can read and write: pinned, and mapped at the same address.

#include <cstddef>

#include "tetrad/core/buffer.h"
#include "tetrad/core/threads.h"

namespace tetrad::cuda {

/// Filled with zeros, for the current device. Throws Error (failure) where there is not enough, or not enough
/// may be pinned.
Buffer allocate_pinned(Threads& threads, std::size_t bytes);

}  // namespace tetrad::cuda
