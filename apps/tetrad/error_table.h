// SPDX-License-Identifier: Apache-2.0
#pragma once
// What quantization lost: one row per tensor, for people or as JSON.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tetrad/ops/quantize.h"

namespace tetrad::app {

struct ErrorRow {
  std::string name;
  std::string detail;  //!< second column: the tensor's shape, say
  QuantStats stats;
};

/// The headings are those of the first two columns.
std::string error_table(const std::string& name_heading, const std::string& detail_heading,
                        const std::vector<ErrorRow>& rows);

/// Figures that are infinite (the SQNR of an exact result) are null.
nlohmann::json to_json(const QuantStats& stats);

}  // namespace tetrad::app
