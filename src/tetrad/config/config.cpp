#include "tetrad/config/config.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "tetrad/config/bind.h"
#include "tetrad/config/node.h"
#include "tetrad/config/parse.h"
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

/// An example of everything, so that help shows the keys inside lists and optional sections too.
Config example() {
  Config config;
  config.model.rope = RopeConfig{.scaling = RopeScaling{}};
  config.precision.operands["fprop.x"] = {};
  config.precision.schedule = {{.at = 0.82, .forward = "bf16", .backward = {}}};
  config.data.sources["NAME"] = {};
  config.data.phases = {{.until = 1, .mix = {{"NAME", 1.0}}}};
  return config;
}

}  // namespace

Config load_config(std::span<const std::string> files, std::span<const std::string> overrides,
                   Provenance* provenance) {
  Node root = Node::map();
  for (const std::string& file : files) add_layer(root, config::parse_yaml(config::read_text(file), file));
  return bind(std::move(root), overrides, provenance);
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

std::vector<std::string> differences(const Config& a, const Config& b) {
  const Node root_a = config::write_node(a);
  const Node root_b = config::write_node(b);
  const auto leaves_a = config::leaves(root_a);
  const auto leaves_b = config::leaves(root_b);
  std::map<std::string_view, std::string> texts_b;
  for (const auto& [key, node] : leaves_b) texts_b[key] = config::flow_text(*node);

  std::vector<std::string> keys;
  for (const auto& [key, node] : leaves_a) {
    const auto other = texts_b.find(key);
    if (other == texts_b.end() || other->second != config::flow_text(*node)) keys.push_back(key);
    if (other != texts_b.end()) texts_b.erase(other);
  }
  for (const auto& [key, node] : leaves_b)
    if (texts_b.contains(key)) keys.push_back(key);  // what only b has
  return keys;
}

std::string schema_help() {
  const Node root = config::write_node(example());
  std::string out;
  for (const auto& [key, node] : config::leaves(root))
    fmt::format_to(std::back_inserter(out), "{} = {}  # {}\n", key, config::flow_text(*node), node->help);
  return out;
}

}  // namespace tetrad
