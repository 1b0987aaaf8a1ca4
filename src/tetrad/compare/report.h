// SPDX-License-Identifier: Apache-2.0
#pragma once
// The report of a comparison: report.json, which has every figure, and a page that shows it.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/compare/outcome.h"
#include "tetrad/compare/probe_results.h"

namespace tetrad {

/// What a report is made with.
struct ReportContext {
  std::string created;  //!< ISO 8601
  std::string build;
  std::optional<double> price_per_hour;
};

/// docs/report.md describes it. `probes` by arm.
nlohmann::json make_report(const Comparison& comparison, const std::vector<ArmOutcome>& arms,
                           const std::vector<ArmProbes>& probes, const ReportContext& context);

/// One HTML file that needs nothing else.
std::string make_page(const nlohmann::json& report);

/// A line per arm, for the terminal.
std::string summary_text(const std::vector<ArmOutcome>& arms);

}  // namespace tetrad
