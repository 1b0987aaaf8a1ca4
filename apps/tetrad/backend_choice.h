// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tetrad/ops/backend.h"

namespace tetrad::app {

/// Which of several kernels that a library offers for a product is taken.
enum class KernelChoice : std::uint8_t {
  fastest,  //!< they are timed once, and the choice is remembered
  first,    //!< the one that is named first: nothing is timed
};

/// cpu, cuda, or auto: CUDA where there is a device, else the CPU. 0 threads: the default.
std::unique_ptr<Backend> choose_backend(const std::string& name, int threads = 0,
                                        KernelChoice kernels = KernelChoice::fastest);

/// The processor, or the device.
std::string hardware_name(const Backend& backend);

}  // namespace tetrad::app
