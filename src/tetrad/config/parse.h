// SPDX-License-Identifier: Apache-2.0
#pragma once
// YAML text, files and key=value arguments to nodes. The subset of YAML is what a configuration needs: one
// document, no anchors, no tags, no duplicate keys, limited size and depth.

#include <string>
#include <string_view>

#include "tetrad/config/node.h"

namespace tetrad::config {

inline constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxDepth = 32;
inline constexpr std::size_t kMaxNodes = 100'000;

/// A map, whose nodes' origins are "name:line". Empty text is an empty map.
Node parse_yaml(std::string_view text, std::string_view name);

/// The text of a regular file of at most kMaxFileBytes, valid UTF-8.
std::string read_text(const std::string& path);

/// "train.steps=300" to {train: {steps: 300}}. The value is YAML; one that begins with * is taken as it
/// stands, because a pattern of blocks does and an alias is never meant.
Node parse_override(std::string_view argument);

/// A text from outside, fit for a message: quoted, control characters escaped, cut if long.
std::string shown(std::string_view text);

}  // namespace tetrad::config
