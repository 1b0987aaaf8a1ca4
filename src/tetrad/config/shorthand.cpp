// SPDX-License-Identifier: Apache-2.0
#include "tetrad/config/shorthand.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tetrad/config/bind.h"
#include "tetrad/config/hf_model.h"
#include "tetrad/config/parse.h"
#include "tetrad/config/scalar.h"
#include "tetrad/core/error.h"
#include "tetrad/model/presets.h"

namespace tetrad::config {
namespace {

/// A scalar (or a list, if `lists`) becomes the one entry of a map.
void wrap(Node* node, std::string_view name, bool lists = false) {
  if (node == nullptr || !(node->is(Node::Kind::scalar) || (lists && node->is(Node::Kind::list)))) return;
  Node map = Node::map();
  map.origin = node->origin;
  map.add(std::string(name), std::move(*node));
  *node = std::move(map);
}

Node* find_map(Node* parent, std::string_view name) {
  Node* node = parent != nullptr ? parent->find(name) : nullptr;
  return node != nullptr && node->is(Node::Kind::map) ? node : nullptr;
}

ModelConfig hf_model(const std::string& path, const std::string& origin) {
  try {
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(path, ignored);
    return read_hf_model(is_folder ? (std::filesystem::path(path) / "config.json").string() : path);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: model: {}", origin, error.what()), error.exit_code());
  }
}

/// The model that a name or a path stands for.
Node named_model(const Node& reference) {
  if (!reference.is(Node::Kind::scalar)) refuse(reference, "model.preset", "a preset or a config.json");
  const std::string& name = reference.text;
  Node model;
  if (const ModelConfig* preset = find_preset(name)) {
    model = write_node(*preset);
    set_origin(model, fmt::format("preset {}", name));
    return model;
  }
  if (name.ends_with(".json") || name.find('/') != std::string::npos) {
    model = write_node(hf_model(name, reference.origin));
    set_origin(model, name);
    return model;
  }
  std::vector<std::string> names;
  for (const ModelConfig& preset : presets()) names.push_back(preset.name);
  fail(
      "{}: model: there is no preset {}{}: choose one of {} (tetrad models describes them), or name a "
      "Hugging Face config.json",
      reference.origin, shown(name), nearest_hint(name, names),
      listed(std::vector<std::string_view>(names.begin(), names.end())));
}

void expand_model(Node& root) {
  wrap(root.find("model"), "preset");
  Node* model = find_map(&root, "model");
  const Node* reference = model != nullptr ? model->find("preset") : nullptr;
  if (reference == nullptr) return;
  Node expanded = named_model(*reference);
  Node rest = Node::map();
  for (std::size_t i = 0; i < model->children.size(); ++i)
    if (model->names[i] != "preset") rest.add(model->names[i], std::move(model->children[i]));
  merge(expanded, std::move(rest));
  *model = std::move(expanded);
}

Node word(std::string_view text, const Node& origin) {
  Node node = Node::scalar(std::string(text));
  node.origin = origin.origin;
  return node;
}

/// One word for all of `train.memory`; another is one about moments.
void expand_memory(Node* memory) {
  if (memory == nullptr || !(memory->is_word("auto") || memory->is_word("device")))
    return wrap(memory, "moments");
  const bool is_auto = memory->is_word("auto");
  Node map = Node::map();
  map.origin = memory->origin;
  map.add("moments", *memory);
  map.add("weights", is_auto ? *memory : word("values", *memory));
  map.add("residual", *memory);
  *memory = std::move(map);
}

/// A rule for block scales as the one entry, or the two, that it is about.
void expand_scale(Node* scale) {
  if (scale == nullptr || !scale->is(Node::Kind::scalar)) return;
  Node map = Node::map();
  map.origin = scale->origin;
  if (scale->text == "up" || scale->text == "floor") {
    map.add("mxfp4", std::move(*scale));
  } else if (scale->text == "eden") {
    map.add("backward", std::move(*scale));
  } else {
    map.add("forward", *scale);
    map.add("backward", std::move(*scale));
  }
  *scale = std::move(map);
}

bool mentions(const Node& node, std::string_view text) {
  return node.is_word(text) ||
         std::ranges::any_of(node.children, [&](const Node& child) { return mentions(child, text); });
}

/// `adaptive`, which 0.1.0 had in the place of `scale`; the scales of MXFP4 were rounded down then. Something
/// else than true or false stays, and is refused by name.
void rename_adaptive(Node& precision) {
  const Node* adaptive = precision.find("adaptive");
  if (adaptive == nullptr || !(adaptive->is_word("true") || adaptive->is_word("false"))) return;
  Node scale = Node::map();
  scale.origin = adaptive->origin;
  if (adaptive->is_word("true"))
    for (const char* pass : {"forward", "backward"}) scale.add(pass, word("4/6", *adaptive));
  if (mentions(precision, "mxfp4")) scale.add("mxfp4", word("floor", *adaptive));
  if (Node* said = precision.find("scale")) merge(scale, std::move(*said));
  Node rest = Node::map();
  rest.origin = precision.origin;
  rest.replaces = precision.replaces;
  for (std::size_t i = 0; i < precision.children.size(); ++i)
    if (precision.names[i] != "adaptive" && precision.names[i] != "scale")
      rest.add(precision.names[i], std::move(precision.children[i]));
  rest.add("scale", std::move(scale));
  precision = std::move(rest);
}

/// The same for an operand, where it may be unsaid, and says nothing about other formats than NVFP4.
void rename_adaptive_of_operand(Node& operand) {
  const Node* adaptive = operand.is(Node::Kind::map) ? operand.find("adaptive") : nullptr;
  if (adaptive == nullptr) return;
  const bool is_true = adaptive->is_word("true");
  if (!is_true && !adaptive->is_word("false") && !adaptive->is_word("auto")) return;
  const Node* format = operand.find("format");
  const bool is_nvfp4 = format == nullptr || format->is_word("nvfp4") || format->is_word("auto");
  Node rest = Node::map();
  rest.origin = operand.origin;
  rest.replaces = operand.replaces;
  if (is_true || (adaptive->is_word("false") && is_nvfp4))
    rest.add("scale", word(is_true ? "4/6" : "nearest", *adaptive));
  for (std::size_t i = 0; i < operand.children.size(); ++i)
    if (operand.names[i] != "adaptive") rest.add(operand.names[i], std::move(operand.children[i]));
  operand = std::move(rest);
}

/// {fprop: {x: …}} to {fprop.x: …}.
void flatten_operands(Node& operands) {
  Node flat = Node::map();
  flat.origin = operands.origin;
  flat.replaces = operands.replaces;
  for (std::size_t i = 0; i < operands.children.size(); ++i) {
    const std::string& name = operands.names[i];
    Node& child = operands.children[i];
    const bool is_gemm = name == "fprop" || name == "dgrad" || name == "wgrad";
    Node entry = Node::map();
    if (is_gemm && child.is(Node::Kind::map)) {
      for (std::size_t j = 0; j < child.children.size(); ++j)
        entry.add(join_key(name, child.names[j]), std::move(child.children[j]));
    } else {
      entry.add(name, std::move(child));
    }
    for (Node& operand : entry.children) {
      wrap(&operand, "format");
      rename_adaptive_of_operand(operand);
    }
    merge(flat, std::move(entry));
  }
  operands = std::move(flat);
}

void expand_precision(Node& root) {
  wrap(root.find("precision"), "recipe");
  Node* precision = find_map(&root, "precision");
  if (precision == nullptr) return;
  wrap(precision->find("rht"), "gemms", true);
  expand_scale(precision->find("scale"));
  rename_adaptive(*precision);
  if (Node* operands = find_map(precision, "operands")) flatten_operands(*operands);
  Node* high = precision->find("high_precision");
  if (high != nullptr && high->is_word("none")) {
    const std::string origin = high->origin;
    *high = Node::map();
    high->add("first", Node::scalar("0"));
    high->add("last", Node::scalar("0"));
    high->add("match", Node::list());
    high->add("fp8", Node::list());
    set_origin(*high, origin);
  }
}

/// A section whose every line is commented out says nothing, and must not erase what files before it said.
void drop_empty_sections(Node& root) {
  Node kept = Node::map();
  kept.origin = root.origin;
  for (std::size_t i = 0; i < root.children.size(); ++i)
    if (!root.children[i].is(Node::Kind::null)) kept.add(root.names[i], std::move(root.children[i]));
  root = std::move(kept);
}

}  // namespace

void expand_shorthand(Node& root) {
  drop_empty_sections(root);
  expand_model(root);
  expand_precision(root);
  if (Node* sources = find_map(find_map(&root, "data"), "sources"))
    for (Node& source : sources->children) wrap(&source, "path");
  if (Node* train = find_map(&root, "train")) {
    wrap(train->find("eval"), "every");
    wrap(train->find("checkpoint"), "every");
    expand_memory(train->find("memory"));
  }
}

}  // namespace tetrad::config
