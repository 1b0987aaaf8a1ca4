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
  static const std::unique_ptr<Backend> device = make_cuda_backend();
  return *device;
}

Backend& backend(const std::string& name, int threads) {
  if (name == "cpu") return cpu_backend(threads);
  static OnDevice on_device(device_backend());
  return on_device;
}

}  // namespace tetrad::testing
