// SPDX-License-Identifier: Apache-2.0
#include "backend_choice.h"

#include "tetrad/core/error.h"

namespace tetrad::app {

Backend& choose_backend(const std::string& name) {
  if (name == "cpu") return cpu_backend();
  if (name == "cuda") return cuda_backend();
  TETRAD_CHECK(name == "auto", "run.backend: '{}' is none of auto, cpu, cuda", name);
  try {
    return cuda_backend();
  } catch (const Error&) {
    return cpu_backend();
  }
}

std::string hardware_name(const Backend& backend) {
  for (const auto& [name, value] : backend.properties())
    if (name == (backend.name() == "cpu" ? "processor" : "device")) return value;
  return "";
}

}  // namespace tetrad::app
