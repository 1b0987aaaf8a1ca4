// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tetrad/io/mapped_file.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/io/strict_json.h"
#include "tetrad/tokenizer/tokenizer_json.h"
#include "tetrad/tokenizer/tokenizer_json_steps.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

// The largest in use have 30 MB; parsed, a file takes up to twenty times its size.
constexpr JsonLimits kLimits = {.bytes = std::size_t{64} << 20, .depth = 16};
constexpr std::int32_t kMaxId = (1 << 24) - 1;
constexpr std::size_t kMaxAddedBytes = 1024;  // looking for them takes this long for every byte of a text

/// Reads one file. Everything that is refused is refused with its place in the file.
class Reader {
 public:
  Reader(const Json& root, std::string_view where) : root_(root), where_(where) {}

  BpeDefinition read() {
    if (!root_.is_object()) refuse("the file is not a JSON object");
    if (const Json& version = member_of(root_, "version"); !version.is_null() && version != "1.0")
      refuse(fmt::format("its version is {}; only 1.0 can be read", shown_json(version)));
    read_normalizer(member_of(root_, "normalizer"), where_, definition_);
    read_pre_tokenizer(member_of(root_, "pre_tokenizer"), where_, definition_);
    check_decoder(member_of(root_, "decoder"), where_);
    const Json& model = member_of(root_, "model");
    check_model(model);
    read_vocab(member_of(model, "vocab"), member_of(root_, "added_tokens").size());
    read_added(member_of(root_, "added_tokens"));
    place_tokens();
    read_merges(member_of(model, "merges"));
    read_post_processor(member_of(root_, "post_processor"), where_, definition_);
    return std::move(definition_);
  }

 private:
  [[noreturn]] void refuse(std::string_view reason) const { refuse_tokenizer(where_, reason); }

  bool flag(const Json& object, const char* key, std::optional<bool> otherwise = {}) const {
    return read_flag(object, key, otherwise, where_);
  }
  static bool is_set(const Json& value) { return !value.is_null() && value != Json(""); }

  void check_model(const Json& model) {
    if (!model.is_object()) refuse("it has no model");
    const Json& type = member_of(model, "type");
    if (!type.is_null() && type != "BPE") refuse(fmt::format("its model is {}, not BPE", shown_json(type)));
    if (is_set(member_of(model, "dropout")) && member_of(model, "dropout") != 0)
      refuse("its model uses dropout, which Tetrad does not implement");
    if (is_set(member_of(model, "continuing_subword_prefix")) ||
        is_set(member_of(model, "end_of_word_suffix")))
      refuse("its model marks the parts of words, which Tetrad does not implement");
    if (flag(model, "byte_fallback", false))
      refuse("its model falls back to bytes, which is not byte-level BPE");
    definition_.ignore_merges = flag(model, "ignore_merges", false);
  }

  void read_vocab(const Json& vocab, std::size_t added) {
    if (!vocab.is_object()) refuse("its model has no vocab, an object from tokens to ids");
    // Holes between ids are allowed, but the size of the file must bound what is allocated for them.
    max_id_ = static_cast<std::int64_t>(std::min<std::size_t>(2 * (vocab.size() + added) + 65536, kMaxId));
    for (const auto& [spelling, value] : vocab.items()) {
      const std::int64_t id = checked_integer(
          value, fmt::format("{}: the id of the token {}", where_, quoted_name(spelling)), 0, max_id_);
      ids_.emplace(spelling, static_cast<std::int32_t>(id));
    }
  }

  void read_added(const Json& list) {
    if (list.is_null()) return;
    if (!list.is_array()) refuse("added_tokens is not a list");
    std::unordered_set<std::string> contents;
    // The package does not read ids: one that is not in the vocabulary gets the next that is free.
    auto next = static_cast<std::int64_t>(ids_.size());
    for (const Json& entry : list) {
      const Json& content = member_of(entry, "content");
      if (!content.is_string() || content.get_ref<const std::string&>().empty())
        refuse("an added token has no content");
      const auto& text = content.get_ref<const std::string&>();
      if (text.size() > kMaxAddedBytes)
        refuse(
            fmt::format("an added token has {} bytes; at most {} can be read", text.size(), kMaxAddedBytes));
      const auto id = static_cast<std::int32_t>(checked_integer(
          member_of(entry, "id"), fmt::format("{}: the id of the added token {}", where_, quoted_name(text)),
          0, max_id_));
      if (!contents.insert(text).second)
        refuse(fmt::format("the added token {} occurs twice", quoted_name(text)));
      const auto known = ids_.find(text);
      const std::int64_t expected = known != ids_.end() ? known->second : next;
      if (id != expected)
        refuse(fmt::format("the added token {} has the id {}, but readers of the file would give it {}",
                           quoted_name(text), id, expected));
      next = std::max(next, expected + 1);
      definition_.added.push_back({.id = id,
                                   .content = text,
                                   .special = flag(entry, "special"),
                                   .single_word = flag(entry, "single_word"),
                                   .lstrip = flag(entry, "lstrip"),
                                   .rstrip = flag(entry, "rstrip"),
                                   .normalized = flag(entry, "normalized")});
    }
    std::ranges::sort(definition_.added, {}, &AddedToken::id);
  }

  void place_tokens() {
    std::int64_t end = 0;
    for (const auto& [spelling, id] : ids_) end = std::max(end, std::int64_t{id} + 1);
    for (const AddedToken& added : definition_.added) end = std::max(end, std::int64_t{added.id} + 1);
    definition_.tokens.resize(static_cast<std::size_t>(end));
    std::vector<bool> taken(definition_.tokens.size());
    for (const auto& [spelling, id] : ids_) {
      if (taken[static_cast<std::size_t>(id)])
        refuse(fmt::format("the id {} has two tokens, one of them {}", id, quoted_name(spelling)));
      taken[static_cast<std::size_t>(id)] = true;
      std::string& token = definition_.tokens[static_cast<std::size_t>(id)];
      token = unspell_bytes(spelling);
      if (token.empty() && !is_added(id))
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

  const Json& root_;
  std::string where_;
  BpeDefinition definition_;
  std::int64_t max_id_ = 0;
  std::unordered_map<std::string, std::int32_t> ids_;  //!< the model's vocabulary, by spelling
};

}  // namespace

std::unique_ptr<BpeTokenizer> parse_tokenizer_json(std::string_view text, std::string_view where) {
  const Json root = parse_strict_json(text, where, kLimits);
  return std::make_unique<BpeTokenizer>(Reader(root, where).read(), where);
}

std::unique_ptr<BpeTokenizer> load_tokenizer_json(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return parse_tokenizer_json(text, fmt::format("{:?}", path.native()));
}

}  // namespace tetrad
