// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of every backend, also of those that this build or this machine does not have.

#include <string_view>

#include "tetrad/ops/memory.h"

namespace tetrad {

/// By the name of a backend: "cpu" or "cuda".
const MemoryTraits& memory_traits(std::string_view backend);

}  // namespace tetrad
