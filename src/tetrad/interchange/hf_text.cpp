// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/hf_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "tetrad/config/hf_model.h"
#include "tetrad/config/parse.h"
#include "tetrad/core/error.h"
#include "tetrad/io/strict_json.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// A file of the folder; null if it is not there.
struct NamedJson {
  nlohmann::json json;
  std::string name;
};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

NamedJson read_generation_config(const fs::path& folder) {
  const fs::path path = folder / "generation_config.json";
  if (!is_there(path)) return {nullptr, path.string()};
  return {parse_hf_json(config::read_text(path.string()), path.string()), path.string()};
}

/// Only names are read from it, so one that we cannot read is no reason to refuse the model.
nlohmann::json read_tokenizer_config(const fs::path& folder, std::vector<std::string>& warnings) {
  constexpr std::size_t kMaxBytes = std::size_t{16} << 20;  // it lists every added token
  const fs::path path = folder / "tokenizer_config.json";
  if (!is_there(path)) return nullptr;
  try {
    return read_strict_json(path, {kMaxBytes, config::kMaxDepth});
  } catch (const Error& error) {
    warnings.push_back(fmt::format("what it says about special tokens is left out: {}", error.what()));
    return nullptr;
  }
}

/// A number or a list of numbers, each once; absent or null is nothing.
std::vector<std::int64_t> token_ids(const NamedJson& file, const char* key, std::int64_t vocab,
                                    std::vector<std::string>& warnings) {
  constexpr std::size_t kMaxIds = 256;
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  const nlohmann::json& value = member_of(file.json, key);
  if (value.is_null()) return {};
  const nlohmann::json list = value.is_array() ? value : nlohmann::json::array({value});
  TETRAD_CHECK(list.size() <= kMaxIds, "{}: {} lists {} tokens: more than {} are not supported", file.name,
               key, list.size(), kMaxIds);
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> unknown;
  for (const nlohmann::json& element : list) {
    const std::int64_t id = checked_integer(element, fmt::format("{}: {}", file.name, key), -1, kMax);
    std::vector<std::int64_t>& known_or_not = id >= 0 && id < vocab ? ids : unknown;
    if (std::ranges::find(known_or_not, id) == known_or_not.end()) known_or_not.push_back(id);
  }
  if (!unknown.empty())
    warnings.push_back(fmt::format("{}: {} names tokens that the model does not have, which are left out: {}",
                                   file.name, key, fmt::join(unknown, ", ")));
  return ids;
}

/// The id of a token that is named by its text, or by an object with its text.
std::optional<std::int64_t> named_token(const nlohmann::json& names, const char* key,
                                        const Tokenizer& tokenizer) {
  const nlohmann::json& value = member_of(names, key);
  const nlohmann::json& content = value.is_object() ? member_of(value, "content") : value;
  if (!content.is_string()) return std::nullopt;
  const std::vector<std::int32_t> ids = tokenizer.encode(content.get_ref<const std::string&>());
  return ids.size() == 1 && tokenizer.is_special(ids.front()) ? std::optional<std::int64_t>(ids.front())
                                                              : std::nullopt;
}

}  // namespace

TextConfig read_hf_text(const fs::path& folder, const nlohmann::json& config, std::int64_t vocab,
                        const Tokenizer* tokenizer, std::vector<std::string>& warnings) {
  const NamedJson model{config, (folder / "config.json").string()};
  const NamedJson generation = read_generation_config(folder);
  TextConfig text;
  if (const nlohmann::json& context = member_of(model.json, "max_position_embeddings"); !context.is_null())
    text.context =
        checked_integer(context, model.name + ": max_position_embeddings", 1, std::int64_t{1} << 40);
  std::vector<std::int64_t> begins;
  for (const NamedJson* file : {&generation, &model}) {
    if (begins.empty()) begins = token_ids(*file, "bos_token_id", vocab, warnings);
    if (text.ends.empty()) text.ends = token_ids(*file, "eos_token_id", vocab, warnings);
  }
  if (!begins.empty()) text.begin = begins.front();
  if (tokenizer == nullptr) return text;
  const nlohmann::json names = read_tokenizer_config(folder, warnings);
  if (!text.begin) text.begin = named_token(names, "bos_token", *tokenizer);
  text.end = named_token(names, "eos_token", *tokenizer);
  return text;
}

}  // namespace tetrad
