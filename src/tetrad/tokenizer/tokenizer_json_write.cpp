// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string added_tokens_json(const std::vector<AddedToken>& tokens) {
  std::string json;
  std::string_view comma = "\n";
  for (const AddedToken& token : tokens) {
    json += fmt::format(
        R"({}    {{"id": {}, "content": {}, "single_word": {}, "lstrip": {}, "rstrip": {}, "normalized": {}, )"
        R"("special": {}}})",
        comma, token.id, quoted(token.content), token.single_word, token.lstrip, token.rstrip,
        token.normalized, token.special);
    comma = ",\n";
  }
  return json;
}

std::string byte_level_json(bool add_prefix_space, bool use_regex) {
  return fmt::format(
      R"({{"type": "ByteLevel", "add_prefix_space": {}, "trim_offsets": true, "use_regex": {}}})",
      add_prefix_space, use_regex);
}

std::string split_json(const Split& split) {
  if (&split == &digit_split() || &split == &number_split())
    return fmt::format(R"({{"type": "Digits", "individual_digits": {}}})", &split == &digit_split());
  return fmt::format(
      R"({{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}})",
      quoted(std::string(split.pattern)));
}

/// ByteLevel has the GPT-2 split built in; the others stand before it.
std::string pre_tokenizer_json(const BpeDefinition& definition) {
  const bool use_regex = definition.splits.back() == &gpt2_split();
  std::string byte_level = byte_level_json(definition.add_prefix_space, use_regex);
  std::string steps;
  for (std::size_t i = 0; i + (use_regex ? 1 : 0) < definition.splits.size(); ++i)
    if (definition.splits[i] != &whole_split()) steps += split_json(*definition.splits[i]) + ", ";
  if (steps.empty()) return byte_level;
  return fmt::format(R"({{"type": "Sequence", "pretokenizers": [{}{}]}})", steps, byte_level);
}

std::string post_processor_json(const BpeDefinition& definition) {
  std::string byte_level = byte_level_json(false, true);
  if (definition.prefix.empty() && definition.suffix.empty()) return byte_level;
  std::string pieces;
  std::string tokens;
  std::vector<std::int32_t> listed;
  const auto add = [&](std::int32_t id) {
    const auto added = std::ranges::lower_bound(definition.added, id, {}, &AddedToken::id);
    const std::string name = quoted(added != definition.added.end() && added->id == id
                                        ? added->content
                                        : spell_bytes(definition.tokens[static_cast<std::size_t>(id)]));
    pieces +=
        fmt::format(R"({}{{"SpecialToken": {{"id": {}, "type_id": 0}}}})", pieces.empty() ? "" : ", ", name);
    if (std::ranges::find(listed, id) != listed.end()) return;
    listed.push_back(id);
    tokens += fmt::format(R"({0}{1}: {{"id": {1}, "ids": [{2}], "tokens": [{1}]}})",
                          tokens.empty() ? "" : ", ", name, id);
  };
  for (const std::int32_t id : definition.prefix) add(id);
  pieces += fmt::format(R"({}{{"Sequence": {{"id": "A", "type_id": 0}}}})", pieces.empty() ? "" : ", ");
  for (const std::int32_t id : definition.suffix) add(id);
  // Pairs of texts are not for us, but readers want to hear of them.
  const std::string pair =
      R"([{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}])";
  return fmt::format(
      R"({{"type": "Sequence", "processors": [{}, {{"type": "TemplateProcessing", "single": [{}], "pair": {}, )"
      R"("special_tokens": {{{}}}}}]}})",
      byte_level, pieces, pair, tokens);
}

}  // namespace

/// Written by hand: the JSON library would sort the vocabulary by token, or take quadratic time not to.
std::string to_tokenizer_json(const BpeDefinition& definition) {
  std::string json =
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  json += added_tokens_json(definition.added);
  json += fmt::format("\n  ],\n  \"normalizer\": {},\n  \"pre_tokenizer\": {},\n",
                      definition.nfc ? R"({"type": "NFC"})" : "null", pre_tokenizer_json(definition));
  json += fmt::format("  \"post_processor\": {},\n  \"decoder\": {},\n", post_processor_json(definition),
                      byte_level_json(false, true));
  json += fmt::format(
      "  \"model\": {{\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
      "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n    \"fuse_unk\": false, "
      "\"byte_fallback\": false, \"ignore_merges\": {},\n    \"vocab\": {{",
      definition.ignore_merges);
  // Added tokens stand in the vocabulary too: readers would give them other ids if there were holes.
  const auto spelling = [&](std::size_t id) {
    const auto added =
        std::ranges::lower_bound(definition.added, static_cast<std::int32_t>(id), {}, &AddedToken::id);
    const bool is_added = added != definition.added.end() && added->id == static_cast<std::int32_t>(id);
    return is_added ? added->content : spell_bytes(definition.tokens[id]);
  };
  std::string_view comma = "\n";
  for (std::size_t id = 0; id < definition.tokens.size(); ++id) {
    const std::string token = spelling(id);
    if (token.empty()) continue;
    json += fmt::format("{}      {}: {}", comma, quoted(token), id);
    comma = ",\n";
  }
  json += "\n    },\n    \"merges\": [";
  comma = "\n";
  for (const auto& [left, right] : definition.merges) {
    json += fmt::format("{}      [{}, {}]", comma, quoted(spelling(static_cast<std::size_t>(left))),
                        quoted(spelling(static_cast<std::size_t>(right))));
    comma = ",\n";
  }
  return json + "\n    ]\n  }\n}\n";
}

}  // namespace tetrad
