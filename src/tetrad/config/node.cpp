// SPDX-License-Identifier: Apache-2.0
#include "tetrad/config/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace tetrad::config {
namespace {

/// Text that any reader of YAML takes for text without quotes.
bool is_plain(std::string_view text) {
  constexpr std::string_view kFirst = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/";
  constexpr std::string_view kRest = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.+-";
  constexpr std::array<std::string_view, 11> kReserved = {"null", "true", "false", "yes",  "no",  "on",
                                                          "off",  "y",    "n",     "none", "auto"};
  if (text.empty() || kFirst.find(text.front()) == std::string_view::npos) return false;
  if (text.find_first_not_of(kRest) != std::string_view::npos) return false;
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::find(kReserved.begin(), kReserved.end(), lower) == kReserved.end();
}

/// In double quotes. Bytes beyond ASCII stay as they are, but for the line separators that YAML folds.
std::string quote(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20 || code == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\x{:02X}", code);
    } else if (text.substr(i).starts_with("\xC2\x85")) {
      out += "\\u0085";
      i += 1;
    } else if (text.substr(i).starts_with("\xE2\x80\xA8") || text.substr(i).starts_with("\xE2\x80\xA9")) {
      out += text[i + 2] == '\xA8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string scalar_text(const Node& node) {
  return node.quoted && !is_plain(node.text) ? quote(node.text) : node.text;
}

std::string key_text(const std::string& name) { return is_plain(name) ? name : quote(name); }

void append_block(const Node& map, int indent, std::string& out) {
  for (std::size_t i = 0; i < map.children.size(); ++i) {
    const Node& child = map.children[i];
    out.append(static_cast<std::size_t>(indent), ' ');
    out += key_text(map.names[i]);
    out += ':';
    if (child.is(Node::Kind::map) && !child.children.empty()) {
      out += '\n';
      append_block(child, indent + 2, out);
    } else {
      out += ' ';
      out += flow_text(child);
      out += '\n';
    }
  }
}

void append_leaves(const Node& map, const std::string& path,
                   std::vector<std::pair<std::string, const Node*>>& out) {
  for (std::size_t i = 0; i < map.children.size(); ++i) {
    const Node& child = map.children[i];
    const std::string key = join_key(path, map.names[i]);
    if (child.is(Node::Kind::map) && !child.children.empty())
      append_leaves(child, key, out);
    else
      out.emplace_back(key, &child);
  }
}

}  // namespace

Node Node::scalar(std::string text, bool quoted) {
  Node node;
  node.kind = Kind::scalar;
  node.text = std::move(text);
  node.quoted = quoted;
  return node;
}

Node Node::list() {
  Node node;
  node.kind = Kind::list;
  return node;
}

Node Node::map() {
  Node node;
  node.kind = Kind::map;
  return node;
}

const Node* Node::find(std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? nullptr : &children[static_cast<std::size_t>(found - names.begin())];
}

Node* Node::find(std::string_view name) { return const_cast<Node*>(std::as_const(*this).find(name)); }

void Node::add(std::string name, Node child) {
  names.push_back(std::move(name));
  children.push_back(std::move(child));
}

void merge(Node& into, Node from) {
  if (!into.is(Node::Kind::map) || !from.is(Node::Kind::map) || from.replaces) {
    into = std::move(from);
    return;
  }
  for (std::size_t i = 0; i < from.children.size(); ++i) {
    if (Node* known = into.find(from.names[i]))
      merge(*known, std::move(from.children[i]));
    else
      into.add(std::move(from.names[i]), std::move(from.children[i]));
  }
}

void set_origin(Node& node, const std::string& origin) {
  node.origin = origin;
  for (Node& child : node.children) set_origin(child, origin);
}

std::string flow_text(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return "null";
    case Node::Kind::scalar:
      return scalar_text(node);
    case Node::Kind::list:
    case Node::Kind::map:
      break;
  }
  const bool is_map = node.is(Node::Kind::map);
  std::string out = is_map ? "{" : "[";
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    if (i > 0) out += ", ";
    if (is_map) out += key_text(node.names[i]) + ": ";
    out += flow_text(node.children[i]);
  }
  return out + (is_map ? "}" : "]");
}

std::string block_text(const Node& map) {
  std::string out;
  append_block(map, 0, out);
  return out;
}

std::vector<std::pair<std::string, const Node*>> leaves(const Node& map) {
  std::vector<std::pair<std::string, const Node*>> out;
  append_leaves(map, "", out);
  return out;
}

std::string join_key(std::string_view parent, std::string_view name) {
  return parent.empty() ? std::string(name) : fmt::format("{}.{}", parent, name);
}

}  // namespace tetrad::config
