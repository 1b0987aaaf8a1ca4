// SPDX-License-Identifier: Apache-2.0
#pragma once
// The built program on several ranks. TETRAD_MPIRUN is defined by the build.

#include <unistd.h>

#include <string>
#include <vector>

#include "support/process.h"

namespace tetrad::testing {

inline std::vector<std::string> launcher(int ranks) {
  std::vector<std::string> words = {TETRAD_MPIRUN,     "-n",        std::to_string(ranks),
                                    "--oversubscribe", "--bind-to", "none"};
  if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
  return words;
}

inline Outcome run_ranks(int ranks, const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment = {}) {
  return RunningTetrad(arguments, environment, {}, launcher(ranks)).wait();
}

}  // namespace tetrad::testing
