// SPDX-License-Identifier: Apache-2.0
#include "support/backends.h"

#include "support/cpu.h"
#include "support/on_device.h"

namespace tetrad::testing {

std::vector<std::string> backend_names() {
#if defined(TETRAD_GPU_TESTS)
  return {"cpu", "cuda"};
#else
  return {"cpu"};
#endif
}

Backend& device_backend() {
  // Never destroyed: when static objects are, the libraries of CUDA may be gone.
  static Backend* const device = make_cuda_backend().release();
  return *device;
}

Backend& backend(const std::string& name, int threads) {
  if (name == "cpu") return cpu_backend(threads);
  static OnDevice on_device(device_backend());
  return on_device;
}

}  // namespace tetrad::testing
