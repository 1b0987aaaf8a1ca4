// SPDX-License-Identifier: Apache-2.0
#pragma once
// A configuration before it has types: what YAML, overrides and presets become, and what is merged.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tetrad::config {

struct Node {
  enum class Kind { null, scalar, list, map };

  Kind kind = Kind::null;
  std::string text;                //!< value of a scalar
  bool quoted = false;             //!< a scalar that stood in quotes: text, never a number or a keyword
  std::vector<std::string> names;  //!< keys of a map, in the order of the file
  std::vector<Node> children;      //!< elements of a list or a map
  bool replaces = false;           //!< a map that was tagged !replace: nothing of what it meets stays
  std::string origin;              //!< where it was written; empty: nowhere
  std::string_view help;           //!< what the key means, where the schema made the node

  static Node scalar(std::string text, bool quoted = false);
  static Node list();
  static Node map();

  bool is(Kind k) const { return kind == k; }
  /// An unquoted scalar with this text.
  bool is_word(std::string_view word) const { return kind == Kind::scalar && !quoted && text == word; }

  const Node* find(std::string_view name) const;
  Node* find(std::string_view name);
  void add(std::string name, Node child);
};

/// Maps merge by key; a map with !replace, and anything else, replaces what was there.
void merge(Node& into, Node from);

/// Every node under this one was written here.
void set_origin(Node& node, const std::string& origin);

/// YAML on one line. Scalars that plain YAML would misread are quoted.
std::string flow_text(const Node& node);

/// YAML with one line per leaf; a list is a leaf.
std::string block_text(const Node& map);

/// The leaves of a map with their dotted keys; a list is a leaf, and so is an empty map.
std::vector<std::pair<std::string, const Node*>> leaves(const Node& map);

std::string join_key(std::string_view parent, std::string_view name);

}  // namespace tetrad::config
