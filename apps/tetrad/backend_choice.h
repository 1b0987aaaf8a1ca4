// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "tetrad/ops/backend.h"

namespace tetrad::app {

struct BackendOptions {
  int threads = 0;     //!< 0: the default
  int device = 0;      //!< CudaOptions::device
  bool tune = true;    //!< CudaOptions::tune
  bool native = true;  //!< CudaOptions::native
};

/// cpu, cuda, or auto: CUDA where there is a device, else the CPU.
std::unique_ptr<Backend> choose_backend(const std::string& name, const BackendOptions& options);
inline std::unique_ptr<Backend> choose_backend(const std::string& name, int threads = 0) {
  return choose_backend(name, BackendOptions{.threads = threads});
}

/// The same for training: on a kind of GPU that is not known, after a selftest (selftest/first_run.h).
std::unique_ptr<Backend> choose_tested_backend(const std::string& name, BackendOptions options);

/// The processor, or the device.
std::string hardware_name(const Backend& backend);

}  // namespace tetrad::app
