#pragma once

#include <string>

#include "tetrad/ops/backend.h"

namespace tetrad::app {

/// cpu, cuda, or auto: CUDA where there is a device, else the CPU.
Backend& choose_backend(const std::string& name);

}  // namespace tetrad::app
