// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads a device's memory beside the operations of its context: on a stream of its own, through a little
// pinned memory.

#include <memory>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/core/memory_reader.h"

namespace tetrad::cuda {

/// Reads memory as what is on the context's stream now leaves it.
std::unique_ptr<MemoryReader> make_reader(const Device& device);

}  // namespace tetrad::cuda
