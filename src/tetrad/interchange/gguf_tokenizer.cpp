#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "tetrad/core/error.h"
#include "tetrad/interchange/checkpoint_source.h"
#include "tetrad/interchange/gguf_model.h"
#include "tetrad/tokenizer/bpe.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad {
namespace {

enum TokenType : std::int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

/// llama.cpp's names of the splits that both have.
struct PreTokenizer {
  std::string_view gguf;
  std::string_view split;
};
constexpr PreTokenizer kPreTokenizers[] = {{"gpt-2", "gpt2"},
                                           {"llama-bpe", "llama3"},
                                           {"qwen2", "qwen2"},
                                           {"gpt-4o", "o200k"},
                                           {"tekken", "tekken"}};

BpeDefinition byte_definition() {
  BpeDefinition definition;
  for (int byte = 0; byte < ByteTokenizer::kVocab; ++byte)
    definition.tokens.emplace_back(1, static_cast<char>(byte));
  return definition;
}

template <typename T>
const T* value_of(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  return value == nullptr ? nullptr : std::get_if<T>(value);
}

/// Bytes of the tokens, and which of them stand for themselves; false if one is not spelled as bytes are.
bool read_tokens(const std::vector<std::string>& spelled, const std::vector<std::int32_t>& types,
                 BpeDefinition& definition) {
  for (std::size_t id = 0; id < spelled.size(); ++id) {
    if (types[id] == kControl || types[id] == kUserDefined) {
      definition.added.push_back(
          {.id = static_cast<std::int32_t>(id), .content = spelled[id], .special = types[id] == kControl});
      definition.tokens.emplace_back();
      continue;
    }
    definition.tokens.push_back(types[id] == kUnused ? std::string() : unspell_bytes(spelled[id]));
    if (types[id] != kUnused && definition.tokens.back().empty()) return false;
  }
  return true;
}

bool read_merges(const std::vector<std::string>& merges, const std::vector<std::string>& spelled,
                 BpeDefinition& definition) {
  std::map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < spelled.size(); ++id) ids.emplace(spelled[id], static_cast<std::int32_t>(id));
  for (const std::string& merge : merges) {
    const std::size_t space = merge.find(' ');
    if (space == std::string::npos) return false;
    const auto left = ids.find(std::string_view(merge).substr(0, space));
    const auto right = ids.find(std::string_view(merge).substr(space + 1));
    if (left == ids.end() || right == ids.end()) return false;
    definition.merges.emplace_back(left->second, right->second);
  }
  return true;
}

}  // namespace

GgufMetadata gguf_tokenizer(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return {{"tokenizer.ggml.model", std::string("no_vocab")}};
  const auto* bpe = dynamic_cast<const BpeTokenizer*>(tokenizer);
  const BpeDefinition bytes = byte_definition();
  const BpeDefinition& definition = bpe != nullptr ? bpe->definition() : bytes;
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  for (std::size_t id = 0; id < definition.tokens.size(); ++id) {
    const auto added = std::ranges::find(definition.added, static_cast<std::int32_t>(id), &AddedToken::id);
    const bool is_added = added != definition.added.end();
    const bool is_unused = !is_added && definition.tokens[id].empty();
    tokens.push_back(is_unused  ? fmt::format("[unused {}]", id)
                     : is_added ? added->content
                                : spell_bytes(definition.tokens[id]));
    types.push_back(is_unused ? kUnused : !is_added ? kNormal : added->special ? kControl : kUserDefined);
  }
  std::vector<std::string> merges;
  for (const auto& [left, right] : definition.merges)
    merges.push_back(tokens[static_cast<std::size_t>(left)] + " " + tokens[static_cast<std::size_t>(right)]);
  const auto* pre = std::ranges::find(kPreTokenizers, definition.splits.front()->name, &PreTokenizer::split);
  TETRAD_CHECK(definition.splits.size() == 1 && pre != std::end(kPreTokenizers),
               "GGUF has no name for the way in which this tokenizer splits text ({}): export to hf",
               tokenizer->description());
  GgufMetadata metadata = {
      {"tokenizer.ggml.model", std::string("gpt2")}, {"tokenizer.ggml.pre", std::string(pre->gguf)},
      {"tokenizer.ggml.tokens", std::move(tokens)},  {"tokenizer.ggml.token_type", std::move(types)},
      {"tokenizer.ggml.merges", std::move(merges)},  {"tokenizer.ggml.add_bos_token", false}};
  if (const auto end = tokenizer->end_of_document())
    metadata.emplace_back("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(*end));
  return metadata;
}

std::string gguf_tokenizer_json(const GgufFile& file) {
  const auto* model = value_of<std::string>(file, "tokenizer.ggml.model");
  const auto* pre = value_of<std::string>(file, "tokenizer.ggml.pre");
  const auto* tokens = value_of<std::vector<std::string>>(file, "tokenizer.ggml.tokens");
  const auto* types = value_of<std::vector<std::int32_t>>(file, "tokenizer.ggml.token_type");
  const auto* merges = value_of<std::vector<std::string>>(file, "tokenizer.ggml.merges");
  const bool is_bpe = model != nullptr && *model == "gpt2" && pre != nullptr && tokens != nullptr &&
                      types != nullptr && tokens->size() == types->size();
  if (!is_bpe) return {};
  const auto* known = std::ranges::find(kPreTokenizers, std::string_view(*pre), &PreTokenizer::gguf);
  if (known == std::end(kPreTokenizers)) return {};
  BpeDefinition definition;
  definition.splits = {split_of_name(known->split)};
  definition.ignore_merges = known->split == "llama3";
  // An empty list has no kind, so a tokenizer without merges has none to read.
  const std::vector<std::string> none;
  if (!read_tokens(*tokens, *types, definition) ||
      !read_merges(merges != nullptr ? *merges : none, *tokens, definition))
    return {};
  return to_tokenizer_json(definition);
}

}  // namespace tetrad
