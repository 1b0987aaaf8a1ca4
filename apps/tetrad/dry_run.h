// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tetrad/config/config.h"
#include "tetrad/core/error.h"

namespace tetrad::app {

/// What a run would do, and whether it could: configuration with origins, data and how often it is read,
/// sizes, memory and disk beside what is free, the precision of every GEMM, time and price from a short
/// measurement, and what is doubtful. Memory is what run.backend would need, which need not be there.
/// `ranks` need not be there; memory and time are then those of each.
/// ExitCode::bad_input if the run would be refused; it has said why.
ExitCode print_dry_run(const Config& config, const Provenance& provenance, int ranks,
                       std::optional<double> price_per_hour);

}  // namespace tetrad::app
