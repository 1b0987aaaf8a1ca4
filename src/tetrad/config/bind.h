// SPDX-License-Identifier: Apache-2.0
#pragma once
// Nodes to structs and back, by the description in schema.h.

#include <string>
#include <string_view>
#include <vector>

#include "tetrad/config/config.h"
#include "tetrad/config/node.h"

namespace tetrad::config {

/// What the node does not say keeps its default. Throws Error for unknown keys, wrong types and values out of
/// range.
Config read_node(const Node& root, Provenance* provenance);

/// Everything, with the help of each key.
Node write_node(const Config& config);
Node write_node(const ModelConfig& model);

/// A key, what it is if nobody says anything, and what it means.
struct KeyHelp {
  std::string key, value;
  std::string_view help;
};

/// Every key that there can be. Those of elements of lists have [] for the element, those of named entries
/// NAME for the name; their values are what an element has that does not say them.
std::vector<KeyHelp> list_keys();

}  // namespace tetrad::config
