// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>

#include "tetrad/ops/backend.h"

namespace tetrad::testing {

/// The CPU, made once for each number of threads. One is what most tests want: on matrices as small as
/// theirs, waking a second thread takes longer than the work. 0: as many as the machine has cores.
inline Backend& cpu_backend(int threads = 1) {
  static std::map<int, std::unique_ptr<Backend>> backends;
  std::unique_ptr<Backend>& backend = backends[threads];
  if (!backend) backend = make_cpu_backend({.threads = threads, .instruction_set = {}});
  return *backend;
}

}  // namespace tetrad::testing
