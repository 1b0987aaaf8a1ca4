// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tetrad {

/// Who began a run, where and how: time, program, command line, host, system, and the variables of the
/// environment that have an influence on it. No others: they may be secrets.
nlohmann::json describe_origin(const std::string& version, const std::string& build);

}  // namespace tetrad
