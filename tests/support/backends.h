// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every op's tests run over every backend that this build can run.

#include <string>
#include <vector>

#include "support/cpu.h"
#include "tetrad/ops/backend.h"

namespace tetrad::testing {

/// Names, because a backend is created when a test asks for it.
std::vector<std::string> backend_names();

/// Names a test after its parameter, the backend: `--gtest_filter=*cuda*` is every test on a device.
struct BackendTestName {
  template <typename TestParamInfo>
  std::string operator()(const TestParamInfo& test) const {
    return test.param;
  }
};

/// A backend that takes pointers into the program's memory. `threads` are the CPU's, see cpu_backend().
Backend& backend(const std::string& name, int threads = 1);

/// The CUDA device itself, with memory of its own.
Backend& device_backend();

}  // namespace tetrad::testing
