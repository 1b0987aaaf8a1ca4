// SPDX-License-Identifier: Apache-2.0
#pragma once
// Letters of HTTP, whatever the locale.

#include <string>
#include <string_view>

namespace tetrad {

inline std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

}  // namespace tetrad
