// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/error.h"
#include "tetrad/ops/backend.h"

namespace tetrad {

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& /*options*/) {
  fail("this build has no CUDA backend: use the CPU");
}

}  // namespace tetrad
