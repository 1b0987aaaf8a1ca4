// SPDX-License-Identifier: Apache-2.0
#include "error_table.h"

#include <fmt/format.h>

#include <cmath>

namespace tetrad::app {
namespace {

std::string decibels(const QuantStats& stats) {
  return std::isinf(stats.sqnr_db()) ? "exact" : fmt::format("{:.2f}", stats.sqnr_db());
}

std::string percent(double fraction) { return fmt::format("{:.3f} %", 100.0 * fraction); }

}  // namespace

std::string error_table(const std::string& name_heading, const std::string& detail_heading,
                        const std::vector<ErrorRow>& rows) {
  std::size_t name_width = name_heading.size();
  std::size_t detail_width = detail_heading.size();
  for (const ErrorRow& row : rows) {
    name_width = std::max(name_width, row.name.size());
    detail_width = std::max(detail_width, row.detail.size());
  }
  std::string text = fmt::format("{:<{}}  {:>{}}  {:>8}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}\n",
                                 name_heading, name_width, detail_heading, detail_width, "SQNR dB",
                                 "max error", "flushed", "saturated", "zero scale", "amax");
  for (const ErrorRow& row : rows)
    text += fmt::format("{:<{}}  {:>{}}  {:>8}  {:>10.4g}  {:>10}  {:>10}  {:>10}  {:>10.4g}\n", row.name,
                        name_width, row.detail, detail_width, decibels(row.stats), row.stats.max_error,
                        percent(row.stats.flushed_fraction()), percent(row.stats.saturated_fraction()),
                        row.stats.zero_scale_blocks, row.stats.amax);
  return text;
}

nlohmann::json to_json(const QuantStats& stats) {
  const double sqnr = stats.sqnr_db();
  return {{"sqnr_db", std::isfinite(sqnr) ? nlohmann::json(sqnr) : nlohmann::json()},
          {"max_error", stats.max_error},
          {"flushed_fraction", stats.flushed_fraction()},
          {"saturated_fraction", stats.saturated_fraction()},
          {"zero_scale_blocks", stats.zero_scale_blocks},
          {"blocks", stats.blocks},
          {"elements", stats.measured},
          {"amax", stats.amax}};
}

}  // namespace tetrad::app
