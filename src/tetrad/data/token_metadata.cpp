// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/token_metadata.h"
#include "tetrad/io/json_text.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tetrad/core/error.h"
#include "tetrad/io/strict_json.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxCount = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::string to_json_text(const TokenMetadata& metadata) {
  nlohmann::ordered_json json;
  if (!metadata.tokenizer.empty())
    json["tokenizer"] = {{"spec", metadata.tokenizer}, {"hash", metadata.tokenizer_hash}};
  json["vocab"] = metadata.vocab;
  json["tokens"] = metadata.tokens;
  json["documents"] = metadata.documents;
  if (metadata.bytes > 0) json["bytes"] = metadata.bytes;
  json["unigram_entropy"] = metadata.unigram_entropy;
  if (!metadata.kind.empty()) {
    json["synthetic"] = {{"kind", metadata.kind}, {"parameters", metadata.parameters}};
    json["entropy"] = metadata.entropy.value_or(0);
  }
  return json_text(json, 2) + "\n";
}

TokenMetadata read_token_metadata(const std::filesystem::path& path) {
  const std::string where = fmt::format("{:?}", path.native());
  const Json json = read_strict_json(path, {});
  TETRAD_CHECK(json.is_object(), "{}: not a JSON object; remove it or run `tetrad data prepare` again",
               where);
  const auto integer = [&](const Json& object, const char* key, std::int64_t low) {
    return checked_integer(member_of(object, key), fmt::format("{}: {}", where, key), low, kMaxCount);
  };
  const auto real = [&](const char* key) {
    const Json& value = member_of(json, key);
    const double number = value.is_number() ? value.get<double>() : -1;
    TETRAD_CHECK(std::isfinite(number) && number >= 0, "{}: {} must be a number that is not negative", where,
                 key);
    return number;
  };
  const auto text = [&](const Json& object, const char* key) {
    const Json& value = member_of(object, key);
    TETRAD_CHECK(value.is_string(), "{}: {} must be a string", where, key);
    return value.get<std::string>();
  };

  TokenMetadata metadata;
  if (const Json& tokenizer = member_of(json, "tokenizer"); !tokenizer.is_null()) {
    metadata.tokenizer = text(tokenizer, "spec");
    metadata.tokenizer_hash = text(tokenizer, "hash");
  }
  metadata.vocab = integer(json, "vocab", 1);
  metadata.tokens = integer(json, "tokens", 0);
  metadata.documents = integer(json, "documents", 0);
  if (json.contains("bytes")) metadata.bytes = integer(json, "bytes", 0);
  metadata.unigram_entropy = real("unigram_entropy");
  if (const Json& synthetic = member_of(json, "synthetic"); !synthetic.is_null()) {
    metadata.kind = text(synthetic, "kind");
    metadata.entropy = real("entropy");
    for (const auto& [name, value] : member_of(synthetic, "parameters").items())
      metadata.parameters[name] = checked_integer(value, fmt::format("{}: parameter {:?}", where, name),
                                                  std::numeric_limits<std::int64_t>::min(), kMaxCount);
  }
  return metadata;
}

double unigram_entropy(std::span<const std::int64_t> counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  double entropy = 0;
  for (const std::int64_t count : counts) {
    const double p = static_cast<double>(count) / total;
    if (count > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace tetrad
