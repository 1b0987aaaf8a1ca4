// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tetrad {

/// JSON as text. The names of files may be any bytes, but JSON is UTF-8: what is not becomes U+FFFD, where
/// dump() alone would throw.
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tetrad
