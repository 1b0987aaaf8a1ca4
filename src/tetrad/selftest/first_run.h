// SPDX-License-Identifier: Apache-2.0
#pragma once
// A kind of GPU that nobody here has: before the first training on it the short selftest runs, once, and
// decides whether its matrix units for narrow formats can be trusted.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tetrad/core/display.h"
#include "tetrad/ops/backend.h"
#include "tetrad/selftest/checks.h"

namespace tetrad::selftest {

/// Whether we have run everything on hardware of this kind: on any CPU, and on the GPUs in the list in
/// first_run.cpp.
bool is_known(const Backend& backend);

struct FirstRun {
  /// The GPU, with or without its matrix units for narrow formats; kernels need not be timed.
  std::function<std::unique_ptr<Backend>(bool native)> open;
  Backend& reference;            //!< the CPU
  std::string build;             //!< of the program: another one is tested again
  std::filesystem::path folder;  //!< where the outcome is remembered; empty: nowhere
  Display& display;
  std::vector<Check> checks = all_checks();  //!< those of the short form are run
};

/// Whether training may use the matrix units for narrow formats. Says what it does and what it found, unless
/// the kind of GPU is known or was tested before. Throws Error (failure) that names what failed, if something
/// did that has no other path.
bool may_use_native(const FirstRun& run);

}  // namespace tetrad::selftest
