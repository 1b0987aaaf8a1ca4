#include "tetrad/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/io/strict_json.h"
#include "tetrad/tokenizer/unicode.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kLimits = {.bytes = std::size_t{256} << 20, .depth = 16};

constexpr std::array<char32_t, 256> kSpelling = [] {
  std::array<char32_t, 256> spelling{};
  char32_t unprintable = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    spelling[byte] = itself ? byte : unprintable++;
  }
  return spelling;
}();
constexpr char32_t kSpellingEnd = 0x100 + 68;

constexpr std::array<std::int16_t, kSpellingEnd> kUnspelling = [] {
  std::array<std::int16_t, kSpellingEnd> unspelling{};
  unspelling.fill(-1);
  for (std::size_t byte = 0; byte < kSpelling.size(); ++byte)
    unspelling[kSpelling[byte]] = static_cast<std::int16_t>(byte);
  return unspelling;
}();

/// Reads one file. Everything that is refused is refused with its place in the file.
class Reader {
 public:
  Reader(const Json& root, std::string_view where) : root_(root), where_(where) {}

  BpeDefinition read() {
    if (!root_.is_object()) refuse("the file is not a JSON object");
    if (!member_of(root_, "normalizer").is_null())
      refuse("it has a normalizer, which Tetrad does not implement");
    read_pre_tokenizer(member_of(root_, "pre_tokenizer"));
    if (member_of(member_of(root_, "decoder"), "type") != "ByteLevel")
      refuse("its decoder is not ByteLevel; only byte-level BPE can be read");
    const Json& model = member_of(root_, "model");
    check_model(model);
    read_added(member_of(root_, "added_tokens"));
    read_vocab(member_of(model, "vocab"));
    read_merges(member_of(model, "merges"));
    return std::move(definition_);
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const { fail("{}: {}", where_, reason); }

  static bool is_true(const Json& value) { return value.is_boolean() && value.get<bool>(); }
  static bool is_set(const Json& value) { return !value.is_null() && value != Json(""); }

  void read_pre_tokenizer(const Json& value) {
    const Json& steps = member_of(value, "type") == "Sequence" ? member_of(value, "pretokenizers") : value;
    const Json& last = steps.is_array() && !steps.empty() ? steps.back() : steps;
    if (member_of(last, "type") != "ByteLevel")
      refuse("its pre-tokenizer is not ByteLevel; only byte-level BPE can be read");
    if (is_true(member_of(last, "add_prefix_space")))
      refuse("its pre-tokenizer adds a space in front of the text, which Tetrad does not implement");
    const Json& use_regex = member_of(last, "use_regex");
    const bool has_gpt2 = use_regex.is_null() || is_true(use_regex);
    if (!steps.is_array() || steps.size() == 1) {
      if (!has_gpt2) refuse("its pre-tokenizer does not split the text, which Tetrad does not implement");
      return;
    }
    const Json& split = steps[0];
    const Json& regex = member_of(member_of(split, "pattern"), "Regex");
    if (steps.size() != 2 || has_gpt2 || member_of(split, "type") != "Split" || !regex.is_string() ||
        member_of(split, "behavior") != "Isolated" || is_true(member_of(split, "invert")))
      refuse("its pre-tokenizer is neither ByteLevel alone nor one Split (Isolated) followed by ByteLevel");
    const auto& pattern = regex.get_ref<const std::string&>();
    definition_.split = find_split(pattern);
    if (definition_.split == nullptr)
      refuse(fmt::format("Tetrad does not implement the split pattern {}", quoted_name(pattern)));
  }

  void check_model(const Json& model) {
    if (!model.is_object()) refuse("it has no model");
    const Json& type = member_of(model, "type");
    if (!type.is_null() && type != "BPE")
      refuse(fmt::format("its model is {}, not BPE", quoted_name(type.dump(-1, ' ', true))));
    if (is_set(member_of(model, "dropout")) && member_of(model, "dropout") != 0)
      refuse("its model uses dropout, which Tetrad does not implement");
    if (is_set(member_of(model, "continuing_subword_prefix")) ||
        is_set(member_of(model, "end_of_word_suffix")))
      refuse("its model marks the parts of words, which Tetrad does not implement");
    if (is_true(member_of(model, "byte_fallback")))
      refuse("its model falls back to bytes, which is not byte-level BPE");
    definition_.ignore_merges = is_true(member_of(model, "ignore_merges"));
  }

  void read_added(const Json& list) {
    if (list.is_null()) return;
    if (!list.is_array()) refuse("added_tokens is not a list");
    std::unordered_set<std::int32_t> ids;
    std::unordered_set<std::string> contents;
    for (const Json& entry : list) {
      const Json& content = member_of(entry, "content");
      if (!content.is_string() || content.get_ref<const std::string&>().empty())
        refuse("an added token has no content");
      const auto& text = content.get_ref<const std::string&>();
      for (const char* flag : {"single_word", "lstrip", "rstrip"})
        if (is_true(member_of(entry, flag)))
          refuse(fmt::format("the added token {} has {}, which Tetrad does not implement", quoted_name(text),
                             flag));
      const auto id = static_cast<std::int32_t>(checked_integer(
          member_of(entry, "id"), fmt::format("{}: the id of the added token {}", where_, quoted_name(text)),
          0, kMaxId));
      if (!ids.insert(id).second || !contents.insert(text).second)
        refuse(fmt::format("the added token {} or its id is there twice", quoted_name(text)));
      definition_.added.push_back({id, text, is_true(member_of(entry, "special"))});
    }
    std::ranges::sort(definition_.added, {}, &AddedToken::id);
  }

  void read_vocab(const Json& vocab) {
    if (!vocab.is_object()) refuse("its model has no vocab, an object from tokens to ids");
    // Holes between ids are allowed, but the size of the file must bound what is allocated for them.
    const auto max_id = static_cast<std::int64_t>(
        std::min<std::size_t>(2 * (vocab.size() + definition_.added.size()) + 65536, kMaxId));
    std::int64_t end = 0;
    for (const auto& [spelling, value] : vocab.items()) {
      const std::int64_t id = checked_integer(
          value, fmt::format("{}: the id of the token {}", where_, quoted_name(spelling)), 0, max_id);
      end = std::max(end, id + 1);
      ids_.emplace(spelling, static_cast<std::int32_t>(id));
    }
    for (const AddedToken& added : definition_.added) {
      if (added.id > max_id) refuse(fmt::format("the id {} of an added token is too large", added.id));
      end = std::max(end, std::int64_t{added.id} + 1);
    }
    definition_.tokens.resize(static_cast<std::size_t>(end));
    for (const AddedToken& added : definition_.added)
      definition_.tokens[static_cast<std::size_t>(added.id)] = added.content;
    for (const auto& [spelling, id] : ids_) {
      std::string& token = definition_.tokens[static_cast<std::size_t>(id)];
      if (!token.empty() && token == spelling && is_added(id)) continue;
      if (!token.empty())
        refuse(fmt::format("the id {} has two tokens, one of them {}", id, quoted_name(spelling)));
      token = unspell_bytes(spelling);
      if (token.empty())
        refuse(fmt::format("the token {} is not spelled as bytes; only byte-level BPE can be read",
                           quoted_name(spelling)));
    }
  }

  bool is_added(std::int32_t id) const {
    return std::ranges::binary_search(definition_.added, id, {}, &AddedToken::id);
  }

  void read_merges(const Json& merges) {
    if (!merges.is_array()) refuse("its model has no list of merges");
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const Json& merge = merges[rank];
      std::string_view left;
      std::string_view right;
      if (merge.is_string()) {
        const std::string_view both = merge.get_ref<const std::string&>();
        const std::size_t space = both.find(' ');
        if (space != std::string_view::npos && both.find(' ', space + 1) == std::string_view::npos) {
          left = both.substr(0, space);
          right = both.substr(space + 1);
        }
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get_ref<const std::string&>();
        right = merge[1].get_ref<const std::string&>();
      }
      if (left.empty() || right.empty())
        refuse(fmt::format("merge {} is neither \"a b\" nor [\"a\", \"b\"]", rank));
      definition_.merges.emplace_back(id_of(left, rank), id_of(right, rank));
    }
  }

  std::int32_t id_of(std::string_view spelling, std::size_t rank) const {
    const auto found = ids_.find(std::string(spelling));
    if (found == ids_.end())
      refuse(
          fmt::format("merge {} refers to {}, which is not in the vocabulary", rank, quoted_name(spelling)));
    return found->second;
  }

  static constexpr std::int32_t kMaxId = (1 << 24) - 1;

  const Json& root_;
  std::string where_;
  BpeDefinition definition_;
  std::unordered_map<std::string, std::int32_t> ids_;  //!< of the model's vocabulary, by spelling
};

std::string quoted(const std::string& text) { return Json(text).dump(); }

}  // namespace

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) append_utf8(spelling, kSpelling[static_cast<std::uint8_t>(c)]);
  return spelling;
}

std::string unspell_bytes(std::string_view spelling) {
  std::string bytes;
  for (std::size_t i = 0; i < spelling.size();) {
    const char32_t point = next_code_point(spelling, i);
    if (point >= kSpellingEnd || kUnspelling[point] < 0) return {};
    bytes += static_cast<char>(kUnspelling[point]);
  }
  return bytes;
}

std::unique_ptr<BpeTokenizer> parse_tokenizer_json(std::string_view text, std::string_view where) {
  const Json root = parse_strict_json(text, where, kLimits);
  return std::make_unique<BpeTokenizer>(Reader(root, where).read(), where);
}

std::unique_ptr<BpeTokenizer> load_tokenizer_json(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return parse_tokenizer_json(text, fmt::format("{:?}", path.native()));
}

/// Written by hand: the JSON library would sort the vocabulary by token, or take quadratic time not to.
std::string to_tokenizer_json(const BpeDefinition& definition) {
  std::string json =
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  std::string_view comma = "\n";
  for (const AddedToken& token : definition.added) {
    json += fmt::format(
        "{}    {{\"id\": {}, \"content\": {}, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
        "\"normalized\": false, \"special\": {}}}",
        comma, token.id, quoted(token.content), token.special);
    comma = ",\n";
  }
  const bool is_gpt2 = definition.split == &gpt2_split();
  const std::string byte_level = fmt::format(
      R"({{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": {}}})",
      is_gpt2);
  const std::string pre_tokenizer =
      is_gpt2
          ? byte_level
          : fmt::format(
                R"({{"type": "Sequence", "pretokenizers": [{{"type": "Split", "pattern": {{"Regex": {}}}, )"
                R"("behavior": "Isolated", "invert": false}}, {}]}})",
                quoted(std::string(definition.split->pattern)), byte_level);
  json += fmt::format("\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": {},\n", pre_tokenizer);
  json += fmt::format("  \"post_processor\": {0},\n  \"decoder\": {0},\n", byte_level);
  json += fmt::format(
      "  \"model\": {{\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
      "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n    \"fuse_unk\": false, "
      "\"byte_fallback\": false, \"ignore_merges\": {},\n    \"vocab\": {{",
      definition.ignore_merges);
  const auto is_added = [&](std::size_t id) {
    return std::ranges::binary_search(definition.added, static_cast<std::int32_t>(id), {}, &AddedToken::id);
  };
  const auto spelling = [&](std::size_t id) {
    return quoted(is_added(id) ? definition.tokens[id] : spell_bytes(definition.tokens[id]));
  };
  comma = "\n";
  for (std::size_t id = 0; id < definition.tokens.size(); ++id) {
    if (definition.tokens[id].empty()) continue;
    json += fmt::format("{}      {}: {}", comma, spelling(id), id);
    comma = ",\n";
  }
  json += "\n    },\n    \"merges\": [";
  comma = "\n";
  for (const auto& [left, right] : definition.merges) {
    json += fmt::format("{}      [{}, {}]", comma, spelling(static_cast<std::size_t>(left)),
                        spelling(static_cast<std::size_t>(right)));
    comma = ",\n";
  }
  return json + "\n    ]\n  }\n}\n";
}

}  // namespace tetrad
