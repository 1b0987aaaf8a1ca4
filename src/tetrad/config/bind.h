// SPDX-License-Identifier: Apache-2.0
#pragma once
// Nodes to structs and back, by the description in schema.h.

#include "tetrad/config/config.h"
#include "tetrad/config/node.h"

namespace tetrad::config {

/// What the node does not say keeps its default. Throws Error for unknown keys, wrong types and values out of
/// range.
Config read_node(const Node& root, Provenance* provenance);

/// Everything, with the help of each key.
Node write_node(const Config& config);
Node write_node(const ModelConfig& model);

}  // namespace tetrad::config
