// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/chrono.h>

#include <ctime>
#include <string>

namespace tetrad {

/// 2026-01-31T23:59:59Z
inline std::string utc_time(std::time_t time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time));
}

}  // namespace tetrad
