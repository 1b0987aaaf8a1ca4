// SPDX-License-Identifier: Apache-2.0
#pragma once
// The report of a comparison: report.json, which has every figure, and a page that shows it.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/compare/outcome.h"
#include "tetrad/compare/probe_results.h"
#include "tetrad/data/dataset.h"

namespace tetrad {

/// What a report is made with.
struct ReportContext {
  std::string created;  //!< ISO 8601
  std::string build;
  std::optional<double> price_per_hour;
  nlohmann::json origin;      //!< describe_beginning()
  std::size_t reference = 0;  //!< the arm that the others are compared with
};

/// What a comparison was begun with, for its reports: the command line, and what a run takes from its
/// sources.
nlohmann::json describe_beginning(const nlohmann::json& command, const Dataset& dataset);

/// docs/report.md describes it. `probes` by arm.
nlohmann::json make_report(const Comparison& comparison, const std::vector<ArmOutcome>& arms,
                           const std::vector<ArmProbes>& probes, const ReportContext& context);

/// One HTML file that needs nothing else.
std::string make_page(const nlohmann::json& report);

/// A line per arm, for the terminal, and what the intervals mean.
std::string summary_text(const Comparison& comparison, const std::vector<ArmOutcome>& arms);

}  // namespace tetrad
