// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tetrad::app {

/// A configuration on the command line: YAML files and key=value, in any order.
struct ConfigArguments {
  std::vector<std::string> files, overrides;

  explicit ConfigArguments(const std::vector<std::string>& words) {
    for (const std::string& word : words)
      (word.find('=') != std::string::npos ? overrides : files).push_back(word);
  }
};

}  // namespace tetrad::app
