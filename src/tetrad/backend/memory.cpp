// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/memory.h"

#include "tetrad/backend/cpu/memory.h"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/core/error.h"

namespace tetrad {

const MemoryTraits& memory_traits(std::string_view backend) {
  if (backend == "cuda") return kCudaMemory;
  TETRAD_CHECK(backend == "cpu", "unknown backend '{}'; valid backends: cpu, cuda", backend);
  return kCpuMemory;
}

}  // namespace tetrad
