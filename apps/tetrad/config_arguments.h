// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace tetrad::app {

/// --backend and --threads, where a configuration could say the same.
struct MachineOptions {
  std::string backend;  //!< empty: not given
  int threads = 0;      //!< 0: not given
};

/// A configuration on the command line: YAML files and key=value, in any order, and options that stand for
/// keys.
struct ConfigArguments {
  std::vector<std::string> files, overrides;

  explicit ConfigArguments(const std::vector<std::string>& words, const MachineOptions& machine = {}) {
    for (const std::string& word : words)
      (word.find('=') != std::string::npos ? overrides : files).push_back(word);
    if (!machine.backend.empty()) overrides.push_back("run.backend=" + machine.backend);
    if (machine.threads > 0) overrides.push_back(fmt::format("run.threads={}", machine.threads));
  }
};

}  // namespace tetrad::app
