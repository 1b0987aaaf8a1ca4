// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tetrad::app {

/// After a command line was refused: which command or option in it there is not, and what was probably meant.
/// Empty if that was not the reason.
std::string usage_hint(const CLI::App& app);

}  // namespace tetrad::app
