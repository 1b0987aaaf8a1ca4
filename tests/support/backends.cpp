// SPDX-License-Identifier: Apache-2.0
#include "support/backends.h"

#include "support/on_device.h"

namespace tetrad::testing {

std::vector<std::string> backend_names() {
#if defined(TETRAD_GPU_TESTS)
  return {"cpu", "cuda"};
#else
  return {"cpu"};
#endif
}

Backend& backend(const std::string& name) {
  if (name == "cpu") return cpu_backend();
  static OnDevice on_device(cuda_backend());
  return on_device;
}

}  // namespace tetrad::testing
