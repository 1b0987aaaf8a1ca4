// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/gguf_tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "tetrad/core/error.h"
#include "tetrad/interchange/checkpoint_source.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/tokenizer/bpe.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad {
namespace {

enum TokenType : std::int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

/// llama.cpp's names of what both have.
struct PreTokenizer {
  std::string_view gguf;
  std::string_view splits;  //!< names of ours
  bool ignore_merges;
};
constexpr PreTokenizer kPreTokenizers[] = {
    {"gpt-2", "gpt2", false},   {"starcoder", "digits gpt2", false}, {"llama-bpe", "llama3", true},
    {"dbrx", "llama3", false},  {"qwen2", "qwen2", false},           {"gpt-4o", "o200k", false},
    {"tekken", "tekken", true},
};

std::string names_of_splits(const BpeDefinition& definition) {
  std::vector<std::string_view> names;
  for (const Split* split : definition.splits) names.push_back(split->name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::vector<const Split*> splits_of_names(std::string_view names) {
  std::vector<const Split*> splits;
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find(' ', begin), names.size());
    splits.push_back(split_of_name(names.substr(begin, end - begin)));
    begin = end + 1;
  }
  return splits;
}

PreTokenizer find_pre_tokenizer(const BpeDefinition& definition, const std::string& description) {
  const std::string splits = names_of_splits(definition);
  const auto* found = std::ranges::find_if(kPreTokenizers, [&](const PreTokenizer& candidate) {
    return candidate.splits == splits && candidate.ignore_merges == definition.ignore_merges;
  });
  TETRAD_CHECK(found != std::end(kPreTokenizers) && !definition.add_prefix_space,
               "llama.cpp has no name for the way in which the tokenizer of this model ({}) splits text: "
               "export with --to hf",
               description);
  return *found;
}

/// What is put around a text: at most a token in front, and at most the end of text behind it.
void add_template(GgufMetadata& metadata, const BpeDefinition& definition, const GgufTextTokens& text) {
  const bool has_end = !definition.suffix.empty();
  TETRAD_CHECK(definition.prefix.size() <= 1 && definition.suffix.size() <= 1 &&
                   (!has_end || definition.suffix.front() == text.end),
               "llama.cpp cannot put the {} tokens around a text that the tokenizer of this model does: "
               "export with --to hf",
               definition.prefix.size() + definition.suffix.size());
  const auto id = [](std::int32_t token) { return static_cast<std::uint32_t>(token); };
  const auto begin = definition.prefix.empty() ? text.begin : std::optional(definition.prefix.front());
  if (begin) metadata.emplace_back("tokenizer.ggml.bos_token_id", id(*begin));
  metadata.emplace_back("tokenizer.ggml.add_bos_token", !definition.prefix.empty());
  if (text.end) metadata.emplace_back("tokenizer.ggml.eos_token_id", id(*text.end));
  metadata.emplace_back("tokenizer.ggml.add_eos_token", has_end);
}

/// Bytes of the tokens, and which of them stand for themselves; false if one is not spelled as it must be.
bool read_tokens(const std::vector<std::string>& spelled, const std::vector<std::int32_t>& types,
                 BpeDefinition& definition) {
  const auto last = std::find_if(types.rbegin(), types.rend(), [](auto type) { return type != kUnused; });
  const auto used = static_cast<std::size_t>(types.rend() - last);
  for (std::size_t id = 0; id < used; ++id) {
    std::string& token = definition.tokens.emplace_back();
    if (types[id] == kControl || types[id] == kUserDefined) {
      if (find_invalid_utf8(spelled[id])) return false;
      definition.added.push_back(
          {.id = static_cast<std::int32_t>(id), .content = spelled[id], .special = types[id] == kControl});
    } else if (types[id] != kUnused) {
      token = unspell_bytes(spelled[id]);
      if (token.empty()) return false;
    }
  }
  return true;
}

bool read_merges(const std::vector<std::string>& merges, const std::vector<std::string>& spelled,
                 BpeDefinition& definition) {
  std::map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < definition.tokens.size(); ++id)
    ids.emplace(spelled[id], static_cast<std::int32_t>(id));
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

/// false: it names a token that there is not.
bool read_template(const GgufHeader& header, BpeDefinition& definition) {
  const auto read = [&](const char* wanted, const char* token, std::vector<std::int32_t>& out) {
    const auto* flag = header.find<bool>(wanted);
    if (flag == nullptr || !*flag) return true;
    const auto* id = header.find<std::uint32_t>(token);
    if (id == nullptr || *id >= definition.tokens.size()) return false;
    out = {static_cast<std::int32_t>(*id)};
    return true;
  };
  return read("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", definition.prefix) &&
         read("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", definition.suffix);
}

}  // namespace

GgufMetadata gguf_tokenizer(const Tokenizer* tokenizer, std::int64_t vocab, const GgufTextTokens& text) {
  if (tokenizer == nullptr) return {{"tokenizer.ggml.model", std::string("no_vocab")}};
  TETRAD_CHECK(tokenizer->vocab() <= vocab,
               "the tokenizer of this model has {} tokens, the model only {}: they do not belong together",
               tokenizer->vocab(), vocab);
  const auto* bpe = dynamic_cast<const BpeTokenizer*>(tokenizer);
  const BpeDefinition bytes = byte_definition();
  const BpeDefinition& definition = bpe != nullptr ? bpe->definition() : bytes;
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  for (const std::string& token : definition.tokens) {
    tokens.push_back(spell_bytes(token));
    types.push_back(token.empty() ? kUnused : kNormal);
  }
  tokens.resize(static_cast<std::size_t>(vocab));
  types.resize(tokens.size(), kUnused);
  for (const AddedToken& added : definition.added) {
    tokens[static_cast<std::size_t>(added.id)] = added.content;
    types[static_cast<std::size_t>(added.id)] = added.special ? kControl : kUserDefined;
  }
  // Every one must have a name of its own.
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (types[id] == kUnused) tokens[id] = fmt::format("[unused {}]", id);
  std::vector<std::string> merges;
  for (const auto& [left, right] : definition.merges)
    merges.push_back(tokens[static_cast<std::size_t>(left)] + " " + tokens[static_cast<std::size_t>(right)]);
  const PreTokenizer pre = find_pre_tokenizer(definition, tokenizer->description());
  GgufMetadata metadata = {{"tokenizer.ggml.model", std::string("gpt2")},
                           {"tokenizer.ggml.pre", std::string(pre.gguf)},
                           {"tokenizer.ggml.tokens", std::move(tokens)},
                           {"tokenizer.ggml.token_type", std::move(types)},
                           {"tokenizer.ggml.merges", std::move(merges)}};
  add_template(metadata, definition, text);
  return metadata;
}

std::string gguf_tokenizer_json(const GgufHeader& header) {
  const auto* model = header.find<std::string>("tokenizer.ggml.model");
  const auto* pre = header.find<std::string>("tokenizer.ggml.pre");
  const auto* tokens = header.find<std::vector<std::string>>("tokenizer.ggml.tokens");
  const auto* types = header.find<std::vector<std::int32_t>>("tokenizer.ggml.token_type");
  const auto* merges = header.find<std::vector<std::string>>("tokenizer.ggml.merges");
  const bool is_bpe = model != nullptr && *model == "gpt2" && pre != nullptr && tokens != nullptr &&
                      types != nullptr && merges != nullptr && tokens->size() == types->size();
  if (!is_bpe) return {};
  const auto* known = std::ranges::find(kPreTokenizers, std::string_view(*pre), &PreTokenizer::gguf);
  if (known == std::end(kPreTokenizers)) return {};
  BpeDefinition definition;
  definition.splits = splits_of_names(known->splits);
  definition.ignore_merges = known->ignore_merges;
  const bool good = read_tokens(*tokens, *types, definition) && read_merges(*merges, *tokens, definition) &&
                    read_template(header, definition);
  return good ? to_tokenizer_json(definition) : std::string();
}

}  // namespace tetrad
