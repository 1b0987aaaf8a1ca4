// SPDX-License-Identifier: Apache-2.0
#include "tetrad/config/bind.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "tetrad/config/parse.h"
#include "tetrad/config/scalar.h"
#include "tetrad/config/schema.h"
#include "tetrad/core/error.h"

namespace tetrad::config {
namespace {

constexpr std::array<std::pair<std::string_view, Activation>, 2> kActivations{
    {{"swiglu", Activation::swiglu}, {"squared_relu", Activation::squared_relu}}};

struct NoVisitor {
  template <typename... Args>
  void field(Args&&...) {}
};

/// A struct with keys of its own.
template <typename T>
concept Section = requires(NoVisitor& v, T& value) {
  describe(v, value);
};

// ---- Writing ----

class Writer {
 public:
  template <typename T>
  void field(std::string_view name, const T& value, std::string_view help, const Rule& rule = {}) {
    Node child = write(value);
    // A word of a closed set cannot be mistaken for a YAML keyword, so it needs no quotes.
    if constexpr (std::is_same_v<T, std::string>)
      child.quoted = std::find(rule.choices.begin(), rule.choices.end(), value) == rule.choices.end();
    child.help = help;
    node_.add(std::string(name), std::move(child));
  }
  Node take() { return std::move(node_); }

  template <Section T>
  static Node write(T value) {
    Writer writer;
    describe(writer, value);
    return writer.take();
  }

 private:
  /// Readers of YAML 1.1 (PyYAML) take 1e-05 for a text, and 1.0e-05 for a number.
  static std::string number_text(std::string text) {
    const std::size_t exponent = text.find('e');
    if (exponent != std::string::npos && text.find('.') == std::string::npos) text.insert(exponent, ".0");
    return text;
  }
  static Node write(std::int64_t value) { return Node::scalar(fmt::to_string(value)); }
  static Node write(std::uint64_t value) { return Node::scalar(fmt::to_string(value)); }
  static Node write(double value) { return Node::scalar(number_text(fmt::to_string(value))); }
  static Node write(float value) { return Node::scalar(number_text(fmt::to_string(value))); }
  static Node write(bool value) { return Node::scalar(value ? "true" : "false"); }
  static Node write(const std::string& value) { return Node::scalar(value, true); }
  static Node write(Activation value) {
    const auto* found = std::find_if(kActivations.begin(), kActivations.end(),
                                     [&](const auto& known) { return known.second == value; });
    return Node::scalar(std::string(found->first), true);
  }
  template <typename T>
  static Node write(const std::optional<T>& value) {
    return value ? write(*value) : Node::scalar(Section<T> ? "none" : "auto");
  }
  template <typename T>
  static Node write(const std::vector<T>& values) {
    Node node = Node::list();
    for (const T& value : values) node.children.push_back(write(value));
    return node;
  }
  template <typename T>
  static Node write(const std::map<std::string, T>& values) {
    Node node = Node::map();
    for (const auto& [name, value] : values) node.add(name, write(value));
    return node;
  }

  Node node_ = Node::map();
};

// ---- Listing ----

class Lister {
 public:
  Lister(std::string path, std::vector<KeyHelp>& keys) : path_(std::move(path)), keys_(keys) {}

  template <typename T>
  void field(std::string_view name, T& value, std::string_view help, const Rule& rule = {}) {
    const std::string key = join_key(path_, name);
    if constexpr (Section<T>)
      enter(key, value);
    else
      list(key, value, help, rule);
  }

 private:
  template <Section T>
  void enter(const std::string& key, T& value) {
    Lister inside(key, keys_);
    describe(inside, value);
  }
  template <typename T>
  void add(const std::string& key, const T& value, std::string_view help, const Rule& rule) {
    Writer writer;
    writer.field(key, value, help, rule);
    keys_.push_back({key, flow_text(writer.take().children.front()), help});
  }

  template <typename T>
  void list(const std::string& key, T& value, std::string_view help, const Rule& rule) {
    add(key, value, help, rule);
  }
  template <Section T>
  void list(const std::string& key, std::optional<T>& value, std::string_view help, const Rule& rule) {
    if (!value) add(key, value, help, rule);
    T inner = value.value_or(T{});
    enter(key, inner);
  }
  template <Section T>
  void list(const std::string& key, std::vector<T>& values, std::string_view help, const Rule& rule) {
    add(key, values, help, rule);
    T element{};
    enter(key + "[]", element);
  }
  template <Section T>
  void list(const std::string& key, std::map<std::string, T>& values, std::string_view help,
            const Rule& rule) {
    add(key, values, help, rule);
    T element{};
    enter(join_key(key, "NAME"), element);
  }

  std::string path_;
  std::vector<KeyHelp>& keys_;
};

// ---- Reading ----

/// Dotted keys of the whole schema that end with this name.
std::optional<std::string> same_name_elsewhere(std::string_view name) {
  static const Node defaults = Writer::write(Config{});
  for (const auto& [key, node] : leaves(defaults))
    if (key.ends_with(name) && key.size() > name.size() && key[key.size() - name.size() - 1] == '.')
      return key;
  return std::nullopt;
}

bool is_name(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  return !text.empty() && text.size() <= 64 && text.find_first_not_of(kLetters) == std::string_view::npos;
}

/// Reads one map; its fields that are maps of their own get a reader each.
class Reader {
 public:
  Reader(const Node& node, std::string path, Provenance* provenance)
      : node_(node), path_(std::move(path)), provenance_(provenance) {}

  template <typename T>
  void field(std::string_view name, T& value, std::string_view, const Rule& rule = {}) {
    known_.emplace_back(name);
    const Node* child = node_.find(name);
    if (child == nullptr) return;
    const std::string key = join_key(path_, name);
    if constexpr (!Section<T>) note(key, *child);
    read(*child, key, value, rule);
  }

  template <Section T>
  void read_section(T& value) {
    // A section of which every line is commented out is empty, not wrong.
    if (node_.is(Node::Kind::null)) return;
    if (!node_.is(Node::Kind::map)) refuse(node_, path_, "a map of keys");
    describe(*this, value);
    for (std::size_t i = 0; i < node_.names.size(); ++i)
      if (std::find(known_.begin(), known_.end(), node_.names[i]) == known_.end()) refuse_unknown(i);
  }

 private:
  [[noreturn]] void refuse_unknown(std::size_t index) const {
    const std::string& name = node_.names[index];
    const std::string& origin = node_.children[index].origin;
    std::string hint = nearest_hint(name, known_);
    if (hint.empty())
      if (const auto key = same_name_elsewhere(name)) hint = fmt::format(" (did you mean '{}'?)", *key);
    const std::vector<std::string_view> known(known_.begin(), known_.end());
    fail("{}{}unknown key {}{}; valid keys: {}", origin, origin.empty() ? "" : ": ",
         shown(join_key(path_, name)), hint, listed(known));
  }

  void note(const std::string& key, const Node& node) {
    if (provenance_ != nullptr && !node.origin.empty()) provenance_->origins[key] = node.origin;
  }

  static void read(const Node& node, const std::string& key, std::int64_t& value, const Rule& rule) {
    value = read_whole(node, key, rule);
  }
  static void read(const Node& node, const std::string& key, std::uint64_t& value, const Rule&) {
    value = read_unsigned(node, key);
  }
  static void read(const Node& node, const std::string& key, double& value, const Rule& rule) {
    value = read_real(node, key, rule);
  }
  static void read(const Node& node, const std::string& key, float& value, const Rule& rule) {
    value = read_float(node, key, rule);
  }
  static void read(const Node& node, const std::string& key, bool& value, const Rule&) {
    value = read_bool(node, key);
  }
  static void read(const Node& node, const std::string& key, std::string& value, const Rule& rule) {
    value = read_string(node, key, rule);
  }
  static void read(const Node& node, const std::string& key, Activation& value, const Rule&) {
    const std::string name = read_string(node, key, one_of({kActivations[0].first, kActivations[1].first}));
    for (const auto& [known, activation] : kActivations)
      if (known == name) value = activation;
  }
  template <Section T>
  void read(const Node& node, const std::string& key, T& value, const Rule&) {
    Reader(node, key, provenance_).read_section(value);
  }
  template <typename T>
  void read(const Node& node, const std::string& key, std::optional<T>& value, const Rule& rule) {
    if (node.is(Node::Kind::null) || node.is_word(Section<T> ? "none" : "auto")) {
      value.reset();
    } else {
      value.emplace();
      read(node, key, *value, rule);
    }
  }
  /// One number stands for a list of one, `none` for the empty list.
  static void read(const Node& node, const std::string& key, std::vector<std::int64_t>& values,
                   const Rule& rule) {
    values.clear();
    if (node.is_word("none")) return;
    if (node.is(Node::Kind::scalar)) {
      values.push_back(read_whole(node, key, rule));
      return;
    }
    if (!node.is(Node::Kind::list)) refuse(node, key, "none, a whole number or a list of them");
    for (std::size_t i = 0; i < node.children.size(); ++i)
      values.push_back(read_whole(node.children[i], fmt::format("{}[{}]", key, i), rule));
  }
  /// One word stands for a list of one, `none` for the empty list.
  void read(const Node& node, const std::string& key, std::vector<std::string>& values, const Rule& rule) {
    values.clear();
    if (node.is_word("none")) return;
    if (node.is(Node::Kind::scalar)) {
      values.push_back(read_string(node, key, rule));
      return;
    }
    if (!node.is(Node::Kind::list))
      refuse(node, key,
             "none, a word or a list" + (rule.choices.empty() ? "" : " of " + listed(rule.choices)));
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      values.push_back(read_string(node.children[i], fmt::format("{}[{}]", key, i), rule));
      TETRAD_CHECK(std::count(values.begin(), values.end(), values.back()) == 1,
                   "{}: {} holds {} twice: leave one out", node.children[i].origin, key,
                   shown(values.back()));
    }
  }
  template <Section T>
  void read(const Node& node, const std::string& key, std::vector<T>& values, const Rule&) {
    if (!node.is(Node::Kind::list)) refuse(node, key, "a list of maps");
    values.clear();
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const Node& child = node.children[i];
      const std::string child_key = fmt::format("{}[{}]", key, i);
      if (!child.is(Node::Kind::map)) refuse(child, child_key, "a map of keys");
      // The list is one value: where its parts came from is not recorded.
      Reader(child, child_key, nullptr).read_section(values.emplace_back());
    }
  }
  /// The rule is for the names of sections, or else for the values.
  template <typename T>
  void read(const Node& node, const std::string& key, std::map<std::string, T>& values, const Rule& rule) {
    values.clear();
    if (node.is(Node::Kind::null)) return;
    if (!node.is(Node::Kind::map)) refuse(node, key, "a map");
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const std::string& name = node.names[i];
      const Node& child = node.children[i];
      check_name(child, key, name, rule.choices);
      if constexpr (Section<T>) {
        if (!child.is(Node::Kind::map)) refuse(child, join_key(key, name), "a map of keys");
      }
      read(child, join_key(key, name), values[name], rule);
    }
  }

  static void check_name(const Node& node, const std::string& key, const std::string& name,
                         const std::vector<std::string_view>& choices) {
    if (choices.empty()) {
      TETRAD_CHECK(is_name(name),
                   "{}: {} has the name {}: use at most 64 letters, digits, - and _ for a name", node.origin,
                   key, shown(name));
      return;
    }
    if (std::find(choices.begin(), choices.end(), name) != choices.end()) return;
    const std::vector<std::string> known(choices.begin(), choices.end());
    fail("{}: unknown key {}{}; valid keys: {}", node.origin, shown(join_key(key, name)),
         nearest_hint(name, known), listed(choices));
  }

  const Node& node_;
  std::string path_;
  Provenance* provenance_;
  std::vector<std::string> known_;
};

}  // namespace

Config read_node(const Node& root, Provenance* provenance) {
  Config config;
  Reader(root, "", provenance).read_section(config);
  return config;
}

Node write_node(const Config& config) { return Writer::write(config); }

Node write_node(const ModelConfig& model) { return Writer::write(model); }

std::vector<KeyHelp> list_keys() {
  std::vector<KeyHelp> keys;
  Config defaults;
  Lister lister("", keys);
  describe(lister, defaults);
  return keys;
}

}  // namespace tetrad::config
