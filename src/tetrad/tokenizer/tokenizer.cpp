// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "tetrad/core/error.h"
#include "tetrad/core/hash.h"
#include "tetrad/tokenizer/tiktoken.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad {

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids(text.size());
  std::ranges::transform(text, ids.begin(), [](char c) { return static_cast<std::uint8_t>(c); });
  return ids;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < kVocab)
      text += static_cast<char>(id);
    else
      text += kReplacementCharacter;
  }
  return text;
}

std::string ByteTokenizer::hash() const { return fmt::format("{:016x}", hash64("bytes")); }

std::size_t ByteTokenizer::cut(std::string_view text, std::size_t at_least) const {
  return std::min(at_least, text.size());
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec) {
  TETRAD_CHECK(!spec.empty(), "no tokenizer is named: use \"bytes\" or the path of a tokenizer.json");
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  if (const auto tiktoken = tiktoken_spec(spec)) return load_tiktoken(*tiktoken);
  return load_tokenizer_json(spec);
}

std::string tokenizer_in_folder(const std::string& spec, const std::filesystem::path& folder) {
  if (const auto tiktoken = tiktoken_spec(spec))
    return fmt::format("{}:{}", tiktoken->encoding, (folder / tiktoken->path).string());
  return (folder / spec).string();
}

}  // namespace tetrad
