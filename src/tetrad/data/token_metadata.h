// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a token file cannot say about itself: NAME.json beside NAME.bin and NAME.idx.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace tetrad {

struct TokenMetadata {
  std::string tokenizer;       //!< what load_tokenizer takes; empty for synthetic sources
  std::string tokenizer_hash;  //!< Tokenizer::hash(); empty for synthetic sources
  std::int64_t vocab = 0;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::int64_t bytes = 0;         //!< bytes of text, without separators; 0 for synthetic sources
  double unigram_entropy = 0;     //!< nats per token of this file's own token frequencies
  std::string kind;               //!< synthetic sources: markov, pcfg, …
  std::optional<double> entropy;  //!< synthetic sources: nats per token, given all tokens before it
  std::map<std::string, std::int64_t> parameters;  //!< parameters of a synthetic source

  friend bool operator==(const TokenMetadata&, const TokenMetadata&) = default;
};

std::string to_json_text(const TokenMetadata& metadata);

/// Throws Error (bad input) if the file is no sound description; unknown members are ignored.
TokenMetadata read_token_metadata(const std::filesystem::path& path);

/// Nats per token, from how often each token occurs; 0 if there is none.
double unigram_entropy(std::span<const std::int64_t> counts);

}  // namespace tetrad
