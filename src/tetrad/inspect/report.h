// SPDX-License-Identifier: Apache-2.0
#pragma once
// An inspection for people, for programs and as lines of a configuration.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tetrad/inspect/inspected_run.h"
#include "tetrad/inspect/inspection.h"

namespace tetrad {

/// Maps and tables for a terminal, ending in the YAML.
std::string report_text(const InspectedRun& run, const Inspection& inspection, const InspectOptions& options);

/// docs/commands.md lists the keys.
nlohmann::json report_json(const InspectedRun& run, const Inspection& inspection,
                           const InspectOptions& options);

/// `precision: {…}` with the recommended list: to paste, or to give to `tetrad train` as a second file.
std::string report_yaml(const InspectedRun& run, const Inspection& inspection);

}  // namespace tetrad
