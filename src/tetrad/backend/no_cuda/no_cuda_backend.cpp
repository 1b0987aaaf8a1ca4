// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/error.h"
#include "tetrad/ops/backend.h"

namespace tetrad {

Backend& cuda_backend() { fail("this build has no CUDA backend: use the CPU"); }

}  // namespace tetrad
