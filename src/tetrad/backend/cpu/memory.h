// SPDX-License-Identifier: Apache-2.0
#pragma once
// How this backend uses memory: operands are packed codes, and threads hold too little to count.

#include "tetrad/ops/memory.h"

namespace tetrad {

inline constexpr MemoryTraits kCpuMemory = {};

}  // namespace tetrad
