// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/tiktoken.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <span>
#include <unordered_map>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/io/mapped_file.h"

namespace tetrad {
namespace {

struct SpecialToken {
  std::string_view content;
  std::int32_t id;
};

constexpr SpecialToken kR50kSpecial[] = {{kEndOfText, 50256}};
constexpr SpecialToken kCl100kSpecial[] = {{kEndOfText, 100257},
                                           {"<|fim_prefix|>", 100258},
                                           {"<|fim_middle|>", 100259},
                                           {"<|fim_suffix|>", 100260},
                                           {"<|endofprompt|>", 100276}};
constexpr SpecialToken kO200kSpecial[] = {{kEndOfText, 199999}, {"<|endofprompt|>", 200018}};

struct Encoding {
  std::string_view name;
  std::string_view file;   //!< under which it was published
  std::string_view split;  //!< its name
  std::size_t ranks;       //!< tokens of the published file
  std::span<const SpecialToken> special;
};

constexpr std::size_t kLlama3Ranks = 128000;
constexpr std::string_view kBeginOfText = "<|begin_of_text|>";

/// Where Meta's names stand behind the last rank; 256 ids have one, and the others are reserved ones.
constexpr SpecialToken kLlama3Special[] = {{kBeginOfText, 0},
                                           {"<|end_of_text|>", 1},
                                           {"<|start_header_id|>", 6},
                                           {"<|end_header_id|>", 7},
                                           {"<|eot_id|>", 9}};
constexpr SpecialToken kLlama31Special[] = {
    {kBeginOfText, 0},          {"<|end_of_text|>", 1},   {"<|finetune_right_pad_id|>", 4},
    {"<|start_header_id|>", 6}, {"<|end_header_id|>", 7}, {"<|eom_id|>", 8},
    {"<|eot_id|>", 9},          {"<|python_tag|>", 10}};

constexpr Encoding kEncodings[] = {
    {"r50k", "r50k_base.tiktoken", "gpt2", 50256, kR50kSpecial},
    {"p50k", "p50k_base.tiktoken", "gpt2", 50280, kR50kSpecial},
    {"cl100k", "cl100k_base.tiktoken", "cl100k", 100256, kCl100kSpecial},
    {"o200k", "o200k_base.tiktoken", "o200k", 199998, kO200kSpecial},
    {"llama3", "", "llama3", kLlama3Ranks, kLlama3Special},
    {"llama3.1", "", "llama3", kLlama3Ranks, kLlama31Special},
};

constexpr std::size_t kMaxToken = 512;  //!< bytes; the longest published ones have 128

constexpr std::array<std::int8_t, 256> kBase64 = [] {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<std::uint8_t>(kDigits[i])] = static_cast<std::int8_t>(i);
  return values;
}();

/// Empty if `text` is not the base64 of at least one byte.
std::string decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return {};
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool padded = i >= text.size() - padding;
    const std::int8_t value = padded ? std::int8_t{0} : kBase64[static_cast<std::uint8_t>(text[i])];
    if (value < 0) return {};
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift & 0xFFu);
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

std::vector<std::string> parse_ranks(std::string_view text, std::string_view where) {
  constexpr std::int64_t kMaxRank = (1 << 24) - 1;
  // Holes are allowed, but the size of the file must bound what is allocated for them.
  const std::int64_t max_rank =
      std::min(kMaxRank, 2 * static_cast<std::int64_t>(std::ranges::count(text, '\n')) + 65536);
  std::vector<std::string> tokens;
  std::int64_t line = 0;
  while (!text.empty()) {
    ++line;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view entry = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (entry.ends_with('\r')) entry.remove_suffix(1);
    if (entry.empty()) continue;
    const std::size_t space = entry.find(' ');
    TETRAD_CHECK(space <= kMaxToken * 4 / 3 + 4,  // npos is not
                 "{}: line {} is not a token in base64 (of at most {} bytes), a space and a rank; is this a "
                 "tiktoken file?",
                 where, line, kMaxToken);
    std::string token = decode_base64(entry.substr(0, space));
    TETRAD_CHECK(!token.empty(), "{}: the token of line {} is not base64", where, line);
    std::int64_t rank = -1;
    const char* const last = entry.data() + entry.size();
    const auto [stop, error] = std::from_chars(entry.data() + space + 1, last, rank);
    TETRAD_CHECK(error == std::errc() && stop == last && rank >= 0 && rank <= max_rank,
                 "{}: the rank of line {} is not a whole number from 0 to {}", where, line, max_rank);
    if (std::ssize(tokens) <= rank) tokens.resize(static_cast<std::size_t>(rank) + 1);
    TETRAD_CHECK(tokens[static_cast<std::size_t>(rank)].empty(), "{}: the rank {} occurs twice (line {})",
                 where, rank, line);
    tokens[static_cast<std::size_t>(rank)] = std::move(token);
  }
  return tokens;
}

/// All pairs of tokens that are a token together, in the order of what they are together.
std::vector<std::pair<std::int32_t, std::int32_t>> merges_of(const std::vector<std::string>& tokens,
                                                             std::string_view where) {
  constexpr std::size_t kMaxMerges = std::size_t{1} << 22;  // the published files have two or three per token
  std::unordered_map<std::string_view, std::int32_t> ranks;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank)
    if (!tokens[rank].empty()) ranks.emplace(tokens[rank], static_cast<std::int32_t>(rank));
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
  for (const std::string_view token : tokens) {
    const auto first = std::ssize(merges);
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ranks.find(token.substr(0, cut));
      const auto right = ranks.find(token.substr(cut));
      if (left != ranks.end() && right != ranks.end()) merges.emplace_back(left->second, right->second);
    }
    std::sort(merges.begin() + first, merges.end());
    TETRAD_CHECK(
        merges.size() <= kMaxMerges,
        "{}: its tokens can be joined from others in more than {} ways; this is no vocabulary of a BPE",
        where, kMaxMerges);
  }
  return merges;
}

void add_special(BpeDefinition& definition, std::string_view content, std::size_t id) {
  definition.tokens.resize(std::max(definition.tokens.size(), id + 1));
  definition.added.push_back({.id = static_cast<std::int32_t>(id), .content = std::string(content)});
}

/// The 256 tokens behind the last rank.
void add_llama3_special(BpeDefinition& definition, std::span<const SpecialToken> named) {
  constexpr int kCount = 256;
  const std::size_t first = definition.tokens.size();
  int reserved = 0;
  for (int i = 0; i < kCount; ++i) {
    const auto found = std::ranges::find(named, i, &SpecialToken::id);
    const std::string name = found != named.end() ? std::string(found->content)
                                                  : fmt::format("<|reserved_special_token_{}|>", reserved++);
    add_special(definition, name, first + static_cast<std::size_t>(i));
  }
  definition.prefix = {static_cast<std::int32_t>(first)};
}

const Encoding* find_encoding(std::string_view name) {
  const auto* const found = std::ranges::find(kEncodings, name, &Encoding::name);
  return found == std::end(kEncodings) ? nullptr : found;
}

std::string encoding_names() {
  std::string names;
  for (const Encoding& encoding : kEncodings)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", encoding.name);
  return names;
}

}  // namespace

std::optional<TiktokenSpec> tiktoken_spec(const std::string& spec) {
  const std::size_t colon = spec.find(':');
  if (colon != std::string::npos)
    if (const Encoding* const encoding = find_encoding(std::string_view(spec).substr(0, colon)))
      return TiktokenSpec{std::string(encoding->name), spec.substr(colon + 1)};
  const std::filesystem::path path(spec);
  for (const Encoding& encoding : kEncodings)
    if (!encoding.file.empty() && path.filename() == encoding.file)
      return TiktokenSpec{std::string(encoding.name), spec};
  TETRAD_CHECK(path.extension() != ".tiktoken" && path.extension() != ".model",
               "{:?} does not say its encoding: write ENCODING:FILE with one of {}, or use a "
               "tokenizer.json",
               spec, encoding_names());
  return std::nullopt;
}

std::unique_ptr<BpeTokenizer> parse_tiktoken(std::string_view text, std::string_view name,
                                             std::string_view where) {
  constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  const Encoding* const encoding = find_encoding(name);
  TETRAD_CHECK(encoding != nullptr, "{}: Tetrad does not implement the encoding {:?}; it has {}", where, name,
               encoding_names());
  TETRAD_CHECK(text.size() <= kMaxBytes, "{}: {} bytes are more than a tiktoken file can have ({})", where,
               text.size(), kMaxBytes);
  BpeDefinition definition;
  definition.splits = {split_of_name(encoding->split)};
  definition.ignore_merges = true;
  definition.tokens = parse_ranks(text, where);
  definition.merges = merges_of(definition.tokens, where);
  const auto ranks = static_cast<std::size_t>(
      std::ranges::count_if(definition.tokens, [](const std::string& token) { return !token.empty(); }));
  if (encoding->name.starts_with("llama3"))
    add_llama3_special(definition, encoding->special);
  else if (ranks == encoding->ranks)
    for (const SpecialToken& token : encoding->special)
      add_special(definition, token.content, static_cast<std::size_t>(token.id));
  else
    add_special(definition, kEndOfText, definition.tokens.size());
  return std::make_unique<BpeTokenizer>(std::move(definition), where);
}

std::unique_ptr<BpeTokenizer> load_tiktoken(const TiktokenSpec& spec) {
  const MappedFile file(spec.path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return parse_tiktoken(text, spec.encoding, fmt::format("{:?}", spec.path));
}

}  // namespace tetrad
