// SPDX-License-Identifier: Apache-2.0
#include "tetrad/config/config.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "tetrad/config/bind.h"
#include "tetrad/config/node.h"
#include "tetrad/config/parse.h"
#include "tetrad/config/paths.h"
#include "tetrad/config/shorthand.h"

namespace tetrad {
namespace {

using config::Node;

void add_layer(Node& root, Node layer) {
  config::expand_shorthand(layer);
  config::merge(root, std::move(layer));
}

Config bind(Node root, std::span<const std::string> overrides, Provenance* provenance) {
  for (const std::string& argument : overrides) add_layer(root, config::parse_override(argument));
  if (provenance != nullptr) provenance->origins.clear();
  return config::read_node(root, provenance);
}

}  // namespace

Config load_config(std::span<const std::string> files, std::span<const std::string> overrides,
                   Provenance* provenance) {
  Node root = Node::map();
  for (const std::string& file : files) add_layer(root, config::parse_yaml(config::read_text(file), file));
  Provenance own;
  Provenance& origins = provenance != nullptr ? *provenance : own;
  Config config = bind(std::move(root), overrides, &origins);
  resolve_paths(config, origins);
  return config;
}

Config parse_config(std::string_view yaml, std::string_view name, std::span<const std::string> overrides,
                    Provenance* provenance) {
  Node root = Node::map();
  add_layer(root, config::parse_yaml(yaml, name));
  return bind(std::move(root), overrides, provenance);
}

std::string to_yaml(const Config& config) { return config::block_text(config::write_node(config)); }

std::string explain(const Config& config, const Provenance& provenance) {
  const Node root = config::write_node(config);
  std::string out;
  for (const auto& [key, node] : config::leaves(root)) {
    const auto origin = provenance.origins.find(key);
    fmt::format_to(std::back_inserter(out), "{} = {}  # {}\n", key, config::flow_text(*node),
                   origin == provenance.origins.end() ? "default" : origin->second);
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> leaf_texts(const Config& config) {
  const Node root = config::write_node(config);
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [key, node] : config::leaves(root)) texts.emplace_back(key, config::flow_text(*node));
  return texts;
}

std::vector<std::string> differences(const Config& a, const Config& b) {
  const auto leaves_b = leaf_texts(b);
  std::map<std::string_view, std::string_view> only_b(leaves_b.begin(), leaves_b.end());
  std::vector<std::string> keys;
  for (const auto& [key, text] : leaf_texts(a)) {
    const auto other = only_b.find(key);
    if (other == only_b.end() || other->second != text) keys.push_back(key);
    if (other != only_b.end()) only_b.erase(other);
  }
  for (const auto& [key, text] : leaves_b)
    if (only_b.contains(key)) keys.push_back(key);
  return keys;
}

std::string schema_help() {
  std::string out;
  for (const config::KeyHelp& key : config::list_keys())
    fmt::format_to(std::back_inserter(out), "{} = {}  # {}\n", key.key, key.value, key.help);
  return out;
}

}  // namespace tetrad
