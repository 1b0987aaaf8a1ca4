// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is in a token file.

#include <cstdint>
#include <vector>

#include "tetrad/data/token_file.h"

namespace tetrad::testing {

inline std::vector<std::int32_t> all_of(const TokenFile& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

}  // namespace tetrad::testing
