// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "tetrad/ops/backend.h"

namespace tetrad::app {

/// cpu, cuda, or auto: CUDA where there is a device, else the CPU. 0 threads: the default.
std::unique_ptr<Backend> choose_backend(const std::string& name, int threads = 0);

/// The processor, or the device.
std::string hardware_name(const Backend& backend);

}  // namespace tetrad::app
