#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/io/strict_json.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kLimits = {.bytes = std::size_t{256} << 20, .depth = 16};
constexpr std::int32_t kMaxId = (1 << 24) - 1;

/// A short form of a value, for messages.
std::string shown(const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>()
                                             : value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return quoted_name(text.substr(0, 200));
}

/// Reads one file. Everything that is refused is refused with its place in the file.
class Reader {
 public:
  Reader(const Json& root, std::string_view where) : root_(root), where_(where) {}

  BpeDefinition read() {
    if (!root_.is_object()) refuse("the file is not a JSON object");
    check_normalizer(member_of(root_, "normalizer"));
    read_pre_tokenizer(member_of(root_, "pre_tokenizer"));
    check_decoder(member_of(root_, "decoder"));
    const Json& model = member_of(root_, "model");
    check_model(model);
    read_vocab(member_of(model, "vocab"), member_of(root_, "added_tokens").size());
    read_added(member_of(root_, "added_tokens"));
    place_tokens();
    read_merges(member_of(model, "merges"));
    read_post_processor(member_of(root_, "post_processor"));
    return std::move(definition_);
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const { fail("{}: {}", where_, reason); }

  static bool is_true(const Json& value) { return value.is_boolean() && value.get<bool>(); }
  static bool is_set(const Json& value) { return !value.is_null() && value != Json(""); }
  /// null, or a list of such things with nothing in it.
  static bool is_nothing(const Json& value, const char* parts) {
    return value.is_null() || (member_of(value, "type") == "Sequence" && member_of(value, parts).is_array() &&
                               member_of(value, parts).empty());
  }

  void check_normalizer(const Json& value) const {
    if (!is_nothing(value, "normalizers"))
      refuse(fmt::format("it has the normalizer {}, which Tetrad does not implement",
                         shown(member_of(value, "type"))));
  }

  void check_decoder(const Json& value) const {
    const Json& parts = member_of(value, "decoders");
    const Json& only =
        member_of(value, "type") == "Sequence" && parts.is_array() && parts.size() == 1 ? parts[0] : value;
    if (member_of(only, "type") != "ByteLevel")
      refuse("its decoder is not ByteLevel; only byte-level BPE can be read");
  }

  /// The steps of a pre-tokenizer, with those of sequences in their place.
  static void flatten(const Json& value, std::vector<const Json*>& steps) {
    const Json& parts = member_of(value, "pretokenizers");
    if (member_of(value, "type") == "Sequence" && parts.is_array())
      for (const Json& part : parts) flatten(part, steps);
    else
      steps.push_back(&value);
  }

  void read_pre_tokenizer(const Json& value) {
    std::vector<const Json*> steps;
    flatten(value, steps);
    if (steps.empty() || member_of(*steps.back(), "type") != "ByteLevel")
      refuse("its pre-tokenizer does not end with ByteLevel; only byte-level BPE can be read");
    definition_.splits.clear();
    for (std::size_t i = 0; i + 1 < steps.size(); ++i) read_step(*steps[i]);
    const Json& byte_level = *steps.back();
    definition_.add_prefix_space = is_true(member_of(byte_level, "add_prefix_space"));
    if (definition_.add_prefix_space && steps.size() > 1)
      refuse("its pre-tokenizer adds a space to every piece of a split, which Tetrad does not implement");
    const Json& use_regex = member_of(byte_level, "use_regex");
    if (use_regex.is_null() || is_true(use_regex)) definition_.splits.push_back(&gpt2_split());
    if (definition_.splits.empty()) definition_.splits.push_back(&whole_split());
  }

  void read_step(const Json& step) {
    const Json& type = member_of(step, "type");
    if (type == "Digits") {
      definition_.splits.push_back(is_true(member_of(step, "individual_digits")) ? &digit_split()
                                                                                 : &number_split());
      return;
    }
    if (type != "Split")
      refuse(fmt::format("its pre-tokenizer has the step {}, which Tetrad does not implement", shown(type)));
    const Json& regex = member_of(member_of(step, "pattern"), "Regex");
    if (!regex.is_string()) refuse("its pre-tokenizer splits at something that is no regular expression");
    // Our patterns match every text from end to end: nothing lies between the matches.
    const Json& behavior = member_of(step, "behavior");
    if (behavior != "Isolated" && !(behavior == "Removed" && is_true(member_of(step, "invert"))))
      refuse(fmt::format("its pre-tokenizer splits with the behavior {}; only Isolated can be read",
                         shown(behavior)));
    const Split* const split = find_split(regex.get_ref<const std::string&>());
    if (split == nullptr) refuse(fmt::format("Tetrad does not implement the split pattern {}", shown(regex)));
    definition_.splits.push_back(split);
  }

  void check_model(const Json& model) {
    if (!model.is_object()) refuse("it has no model");
    const Json& type = member_of(model, "type");
    if (!type.is_null() && type != "BPE") refuse(fmt::format("its model is {}, not BPE", shown(type)));
    if (is_set(member_of(model, "dropout")) && member_of(model, "dropout") != 0)
      refuse("its model uses dropout, which Tetrad does not implement");
    if (is_set(member_of(model, "continuing_subword_prefix")) ||
        is_set(member_of(model, "end_of_word_suffix")))
      refuse("its model marks the parts of words, which Tetrad does not implement");
    if (is_true(member_of(model, "byte_fallback")))
      refuse("its model falls back to bytes, which is not byte-level BPE");
    definition_.ignore_merges = is_true(member_of(model, "ignore_merges"));
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
      const auto id = static_cast<std::int32_t>(checked_integer(
          member_of(entry, "id"), fmt::format("{}: the id of the added token {}", where_, quoted_name(text)),
          0, max_id_));
      if (!contents.insert(text).second)
        refuse(fmt::format("the added token {} is there twice", quoted_name(text)));
      const auto known = ids_.find(text);
      const std::int64_t expected = known != ids_.end() ? known->second : next;
      if (id != expected)
        refuse(fmt::format("the added token {} has the id {}, but readers of the file would give it {}",
                           quoted_name(text), id, expected));
      next = std::max(next, expected + 1);
      const bool special = is_true(member_of(entry, "special"));
      const Json& normalized = member_of(entry, "normalized");
      definition_.added.push_back({.id = id,
                                   .content = text,
                                   .special = special,
                                   .single_word = is_true(member_of(entry, "single_word")),
                                   .lstrip = is_true(member_of(entry, "lstrip")),
                                   .rstrip = is_true(member_of(entry, "rstrip")),
                                   .normalized = normalized.is_null() ? !special : is_true(normalized)});
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

  /// What is put around a text: a template, or RoBERTa's pair of tokens. In a sequence each goes around what
  /// the one before it made.
  void read_post_processor(const Json& value) {
    const Json& type = member_of(value, "type");
    const Json& parts = member_of(value, "processors");
    if (type == "Sequence" && parts.is_array()) {
      for (const Json& part : parts) read_post_processor(part);
    } else if (type == "TemplateProcessing") {
      read_template(member_of(value, "single"), member_of(value, "special_tokens"));
    } else if (type == "RobertaProcessing") {
      const auto id_in = [&](const char* key) {
        const Json& pair = member_of(value, key);
        if (!pair.is_array() || pair.size() != 2) refuse("its post-processor is damaged");
        return template_id(pair[1]);
      };
      definition_.prefix.insert(definition_.prefix.begin(), id_in("cls"));
      definition_.suffix.push_back(id_in("sep"));
    } else if (!value.is_null() && type != "ByteLevel") {
      refuse(fmt::format("it has the post-processor {}, which Tetrad does not implement", shown(type)));
    }
  }

  void read_template(const Json& pieces, const Json& special_tokens) {
    if (!pieces.is_array()) refuse("the template of its post-processor is not a list");
    std::vector<std::int32_t> before;
    std::vector<std::int32_t> after;
    int texts = 0;
    for (const Json& piece : pieces) {
      if (const Json& sequence = member_of(piece, "Sequence"); !sequence.is_null()) {
        ++texts;
        continue;
      }
      const Json& name = member_of(member_of(piece, "SpecialToken"), "id");
      const Json& ids = name.is_string()
                            ? member_of(member_of(special_tokens, name.get_ref<const std::string&>()), "ids")
                            : name;
      if (!ids.is_array()) refuse("the template of its post-processor names a token that it does not define");
      for (const Json& id : ids) (texts == 0 ? before : after).push_back(template_id(id));
    }
    if (texts != 1) refuse("the template of its post-processor does not have the text once");
    definition_.prefix.insert(definition_.prefix.begin(), before.begin(), before.end());
    definition_.suffix.insert(definition_.suffix.end(), after.begin(), after.end());
  }

  std::int32_t template_id(const Json& value) const {
    const auto last = static_cast<std::int64_t>(definition_.tokens.size()) - 1;
    const auto id = static_cast<std::int32_t>(
        checked_integer(value, fmt::format("{}: an id in its post-processor", where_), 0, last));
    if (definition_.tokens[static_cast<std::size_t>(id)].empty() && !is_added(id))
      refuse(fmt::format("its post-processor has the id {}, which no token has", id));
    return id;
  }

  const Json& root_;
  std::string where_;
  BpeDefinition definition_;
  std::int64_t max_id_ = 0;
  std::unordered_map<std::string, std::int32_t> ids_;  //!< of the model's vocabulary, by spelling
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
