// SPDX-License-Identifier: Apache-2.0
#include "tetrad/config/parse.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <utility>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/io/safetensors_header.h"

namespace tetrad::config {
namespace {

using Where = std::function<std::string(const YAML::Mark&)>;

/// Builds a node from the parser's events. Throws at the first thing that a configuration may not hold, so
/// that what it costs is bounded.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(Where where) : where_(std::move(where)) {}

  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    TETRAD_CHECK(!std::exchange(has_document_, true),
                 "{}: a second YAML document begins here ('---'): put it in a file of its own", where_(mark));
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    begin(mark, Node{});
    end();
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_alias(where_(mark)); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (expects_key()) {
      name_key(mark, value);
      return;
    }
    begin(mark, Node::scalar(value, tag == "!"));
    end();
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    begin(mark, Node::list());
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    Node map = Node::map();
    map.replaces = tag == kReplace;
    if (!map.replaces) refuse_tag(mark, tag);
    begin(mark, std::move(map));
  }
  void OnMapEnd() override { end(); }

  [[noreturn]] static void refuse_alias(const std::string& where) {
    fail(
        "{}: a value that begins with * is an alias in YAML, which a configuration may not have: put it in "
        "quotes (pattern: \"*-*-\"), or repeat the value",
        where);
  }

 private:
  struct Level {
    Node node;
    std::string key;
    std::string key_origin;
    bool has_key = false;
  };

  bool expects_key() const {
    return !open_.empty() && open_.back().node.is(Node::Kind::map) && !open_.back().has_key;
  }

  void name_key(const YAML::Mark& mark, const std::string& name) {
    Level& level = open_.back();
    TETRAD_CHECK(!level.node.find(name),
                 "{}: the key {} occurs twice: keep one of the two, or merge their values", where_(mark),
                 shown(name));
    // Looking for duplicates is quadratic; no map of a configuration is large.
    TETRAD_CHECK(level.node.children.size() < kMaxMapEntries, "{}: a map has more than {} keys", where_(mark),
                 kMaxMapEntries);
    level.key = name;
    level.key_origin = where_(mark);
    level.has_key = true;
  }

  void begin(const YAML::Mark& mark, Node node) {
    TETRAD_CHECK(!expects_key(),
                 "{}: a key must be a word, not a list, a map or nothing; is a brace or a bracket left open?",
                 where_(mark));
    TETRAD_CHECK(open_.size() < kMaxDepth, "{}: values are nested more than {} deep", where_(mark),
                 kMaxDepth);
    TETRAD_CHECK(++nodes_ <= kMaxNodes, "{}: there are more than {} values", where_(mark), kMaxNodes);
    // A value belongs to the line of its key, even if it begins on the next.
    const bool has_key = !open_.empty() && open_.back().has_key;
    node.origin = has_key ? open_.back().key_origin : where_(mark);
    open_.push_back({std::move(node), "", "", false});
  }

  void end() {
    Level done = std::move(open_.back());
    open_.pop_back();
    if (open_.empty()) {
      root_ = std::move(done.node);
      return;
    }
    Level& parent = open_.back();
    if (parent.node.is(Node::Kind::map)) parent.node.names.push_back(std::move(parent.key));
    parent.node.children.push_back(std::move(done.node));
    parent.has_key = false;
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    TETRAD_CHECK(anchor == 0, "{}: anchors (&name) are not supported in a configuration: repeat the value",
                 where_(mark));
  }

  /// "?" is a plain scalar and "!" a quoted one; empty is what the parser gives lists and maps.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    TETRAD_CHECK(
        tag.empty() || tag == "?" || tag == "!",
        "{}: tags ({}) are not supported in a configuration, but for {} in front of a map: leave it out",
        where_(mark), shown(tag), kReplace);
  }

  static constexpr std::size_t kMaxMapEntries = 1000;
  static constexpr std::string_view kReplace = "!replace";

  Where where_;
  Node root_;
  std::vector<Level> open_;
  std::size_t nodes_ = 0;
  bool has_document_ = false;
};

/// Whether the word at `mark` begins with *, which makes it an alias. What yaml-cpp says of a bad one differs
/// between its versions, so its message is not asked.
bool is_alias(std::string_view text, const YAML::Mark& mark) {
  if (mark.pos < 0 || static_cast<std::size_t>(mark.pos) > text.size()) return false;
  const std::string_view before = text.substr(0, static_cast<std::size_t>(mark.pos));
  const std::size_t begin = before.find_last_of(" \t\r\n{}[],") + 1;  // npos + 1 is the beginning of the text
  return begin < text.size() && text[begin] == '*';
}

/// One document of any kind; null if there is nothing.
Node parse_document(std::string_view text, const Where& where) {
  std::istringstream stream{std::string(text)};
  Builder builder(where);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    if (is_alias(text, error.mark)) Builder::refuse_alias(where(error.mark));
    fail("{}: not valid YAML: {}", where(error.mark), error.msg);
  }
  return builder.take();
}

void check_text(std::string_view text, std::string_view name) {
  TETRAD_CHECK(text.size() <= kMaxFileBytes,
               "{}: {} bytes are more than the {} that a configuration may have: is this the right file?",
               name, text.size(), kMaxFileBytes);
  if (const auto bad = find_invalid_utf8(text))
    fail("{}: byte {} is not valid UTF-8: save the file as UTF-8", name, *bad);
  const auto control = std::find_if(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t';
  });
  TETRAD_CHECK(control == text.end(),
               "{}: byte {} is a control character (0x{:02X}): this is not a text file", name,
               control - text.begin(), static_cast<unsigned char>(*control));
}

}  // namespace

std::string shown(std::string_view text) { return quoted_name(text); }

Node parse_yaml(std::string_view text, std::string_view name) {
  check_text(text, name);
  Node root = parse_document(
      text, [&](const YAML::Mark& mark) { return fmt::format("{}:{}", name, std::max(mark.line, 0) + 1); });
  if (root.is(Node::Kind::null)) root = Node::map();
  TETRAD_CHECK(root.is(Node::Kind::map), "{}: a configuration is a map of sections such as 'train:', not {}",
               name, root.is(Node::Kind::list) ? "a list" : "a single value");
  return root;
}

std::string read_text(const std::string& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  check_text(text, path);
  return std::string(text);
}

Node parse_override(std::string_view argument) {
  const std::size_t equals = argument.find('=');
  TETRAD_CHECK(equals != std::string_view::npos,
               "{}: an override is written key=value, such as train.steps=300", shown(argument));
  const std::string origin = fmt::format("command line: {}", shown(argument));
  const std::string_view keys = argument.substr(0, equals);
  const std::string_view value = argument.substr(equals + 1);
  check_text(argument, origin);

  Node node;
  if (value.empty() || value.starts_with('*'))
    node = Node::scalar(std::string(value), true);
  else
    node = parse_document(value, [&](const YAML::Mark&) { return std::string(origin); });
  set_origin(node, origin);

  std::size_t end = keys.size();
  for (std::size_t depth = 0;; ++depth) {
    const std::size_t dot = end == 0 ? std::string_view::npos : keys.rfind('.', end - 1);
    const std::size_t begin = dot == std::string_view::npos ? 0 : dot + 1;
    TETRAD_CHECK(end > begin && depth < kMaxDepth,
                 "{}: the key before '=' must be names with a dot between them, such as train.steps", origin);
    Node parent = Node::map();
    parent.origin = origin;
    parent.add(std::string(keys.substr(begin, end - begin)), std::move(node));
    node = std::move(parent);
    if (begin == 0) return node;
    end = dot;
  }
}

}  // namespace tetrad::config
