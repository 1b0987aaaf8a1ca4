// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/tokenizer_json_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/io/strict_json.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

/// One step, or those of a sequence, which are its member `key`, and of sequences in it; none if it is null.
std::vector<const Json*> steps_of(const Json& value, const char* key) {
  if (value.is_null()) return {};
  const Json& parts = member_of(value, key);
  if (member_of(value, "type") != "Sequence" || !parts.is_array()) return {&value};
  std::vector<const Json*> steps;
  for (const Json& part : parts) {
    const std::vector<const Json*> more = steps_of(part, key);
    steps.insert(steps.end(), more.begin(), more.end());
  }
  return steps;
}

const Split* read_split(const Json& step, std::string_view where) {
  const Json& type = member_of(step, "type");
  if (type == "Digits")
    return read_flag(step, "individual_digits", std::nullopt, where) ? &digit_split() : &number_split();
  if (type != "Split")
    refuse_tokenizer(where, fmt::format("its pre-tokenizer has the step {}, which Tetrad does not implement",
                                        shown_json(type)));
  const Json& regex = member_of(member_of(step, "pattern"), "Regex");
  if (!regex.is_string())
    refuse_tokenizer(where, "its pre-tokenizer splits at something that is no regular expression");
  // Our patterns match every text from end to end: nothing lies between the matches.
  const Json& behavior = member_of(step, "behavior");
  if (behavior != "Isolated" && !(behavior == "Removed" && read_flag(step, "invert", false, where)))
    refuse_tokenizer(where,
                     fmt::format("its pre-tokenizer splits with the behavior {}; only Isolated can be read",
                                 shown_json(behavior)));
  const Split* const split = find_split(regex.get_ref<const std::string&>());
  if (split == nullptr)
    refuse_tokenizer(where, fmt::format("Tetrad does not implement the split pattern {}", shown_json(regex)));
  return split;
}

bool is_token(const BpeDefinition& definition, std::int32_t id) {
  return !definition.tokens[static_cast<std::size_t>(id)].empty() ||
         std::ranges::binary_search(definition.added, id, {}, &AddedToken::id);
}

std::int32_t template_id(const Json& value, std::string_view where, const BpeDefinition& definition) {
  const auto last = static_cast<std::int64_t>(definition.tokens.size()) - 1;
  const auto id = static_cast<std::int32_t>(
      checked_integer(value, fmt::format("{}: an id in its post-processor", where), 0, last));
  if (!is_token(definition, id))
    refuse_tokenizer(where, fmt::format("its post-processor has the id {}, which no token has", id));
  return id;
}

/// RoBERTa's pair of tokens.
void read_pair(const Json& value, std::string_view where, BpeDefinition& definition) {
  const auto id_in = [&](const char* key) {
    const Json& pair = member_of(value, key);
    if (!pair.is_array() || pair.size() != 2) refuse_tokenizer(where, "its post-processor is damaged");
    return template_id(pair[1], where, definition);
  };
  definition.prefix.insert(definition.prefix.begin(), id_in("cls"));
  definition.suffix.push_back(id_in("sep"));
}

void read_template(const Json& pieces, const Json& special_tokens, std::string_view where,
                   BpeDefinition& definition) {
  if (!pieces.is_array()) refuse_tokenizer(where, "the template of its post-processor is not a list");
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
  int texts = 0;
  for (const Json& piece : pieces) {
    if (!member_of(piece, "Sequence").is_null()) {
      ++texts;
      continue;
    }
    const Json& name = member_of(member_of(piece, "SpecialToken"), "id");
    const Json& ids = name.is_string()
                          ? member_of(member_of(special_tokens, name.get_ref<const std::string&>()), "ids")
                          : name;
    if (!ids.is_array())
      refuse_tokenizer(where, "the template of its post-processor names a token that it does not define");
    for (const Json& id : ids) (texts == 0 ? before : after).push_back(template_id(id, where, definition));
  }
  if (texts != 1) refuse_tokenizer(where, "the template of its post-processor does not have the text once");
  definition.prefix.insert(definition.prefix.begin(), before.begin(), before.end());
  definition.suffix.insert(definition.suffix.end(), after.begin(), after.end());
}

}  // namespace

void refuse_tokenizer(std::string_view where, std::string_view reason) { fail("{}: {}", where, reason); }

bool read_flag(const Json& object, const char* key, std::optional<bool> otherwise, std::string_view where) {
  const Json& value = member_of(object, key);
  if (value.is_null() && otherwise) return *otherwise;
  if (!value.is_boolean())
    refuse_tokenizer(where, fmt::format("a field {:?} is {}, not true or false", key, shown_json(value)));
  return value.get<bool>();
}

std::string shown_json(const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>()
                                             : value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return quoted_name(text.substr(0, 200));
}

void read_normalizer(const Json& value, std::string_view where, BpeDefinition& definition) {
  for (const Json* const step : steps_of(value, "normalizers")) {
    const Json& type = member_of(*step, "type");
    if (type != "NFC")
      refuse_tokenizer(
          where, fmt::format("it has the normalizer {}, which Tetrad does not implement", shown_json(type)));
    definition.nfc = true;
  }
}

void check_decoder(const Json& value, std::string_view where) {
  const std::vector<const Json*> steps = steps_of(value, "decoders");
  if (steps.size() != 1 || member_of(*steps[0], "type") != "ByteLevel")
    refuse_tokenizer(where, fmt::format("its decoder is {}, not ByteLevel; only byte-level BPE can be read",
                                        shown_json(member_of(value, "type"))));
}

void read_pre_tokenizer(const Json& value, std::string_view where, BpeDefinition& definition) {
  constexpr std::size_t kMaxSteps = 16;  // each is a level of recursion where a text is split
  std::vector<const Json*> steps = steps_of(value, "pretokenizers");
  if (steps.empty() || member_of(*steps.back(), "type") != "ByteLevel")
    refuse_tokenizer(where, "its pre-tokenizer does not end with ByteLevel; only byte-level BPE can be read");
  if (steps.size() > kMaxSteps)
    refuse_tokenizer(where, fmt::format("its pre-tokenizer has {} steps; at most {} can be read",
                                        steps.size(), kMaxSteps));
  const Json& byte_level = *steps.back();
  steps.pop_back();
  definition.splits.clear();
  for (const Json* const step : steps) definition.splits.push_back(read_split(*step, where));
  definition.add_prefix_space = read_flag(byte_level, "add_prefix_space", std::nullopt, where);
  if (definition.add_prefix_space && !steps.empty())
    refuse_tokenizer(where,
                     "its pre-tokenizer adds a space to every piece of a split, which Tetrad does not "
                     "implement");
  if (read_flag(byte_level, "use_regex", true, where)) definition.splits.push_back(&gpt2_split());
  if (definition.splits.empty()) definition.splits.push_back(&whole_split());
}

void read_post_processor(const Json& value, std::string_view where, BpeDefinition& definition) {
  // Each goes around what the one before it made.
  for (const Json* const step : steps_of(value, "processors")) {
    const Json& type = member_of(*step, "type");
    if (type == "TemplateProcessing")
      read_template(member_of(*step, "single"), member_of(*step, "special_tokens"), where, definition);
    else if (type == "RobertaProcessing")
      read_pair(*step, where, definition);
    else if (type != "ByteLevel")
      refuse_tokenizer(where, fmt::format("it has the post-processor {}, which Tetrad does not implement",
                                          shown_json(type)));
  }
}

}  // namespace tetrad
