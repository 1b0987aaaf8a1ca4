// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "tetrad/config/config.h"
#include "tetrad/core/error.h"

namespace tetrad::app {

/// Which need not be there.
struct PlannedRanks {
  int count = 1;
  std::vector<double> links;  //!< ranks of a node, GB/s inside and between; empty: none were given
};

/// What a run would do, and whether it could: configuration with origins, data and how often it is read,
/// sizes, memory and disk beside what is free, the precision of every GEMM, time and price from a short
/// measurement, and what is doubtful. Memory is what run.backend would need, which need not be there.
/// Memory and time are those of each rank.
/// ExitCode::bad_input if the run would be refused; it has said why.
ExitCode print_dry_run(const Config& config, const Provenance& provenance, const PlannedRanks& ranks,
                       std::optional<double> price_per_hour);

}  // namespace tetrad::app
