// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokenizers in GGUF: byte-level BPE whose split llama.cpp has a name for.

#include <cstdint>
#include <optional>
#include <string>

#include "tetrad/interchange/gguf_file.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

/// The tokens that begin and end a text, where there are such.
struct GgufTextTokens {
  std::optional<std::int32_t> begin = {};
  std::optional<std::int32_t> end = {};
};

/// tokenizer.*; nullptr: none. llama.cpp takes the size of the vocabulary from the list of tokens, so the
/// list goes on to `vocab` with tokens that nothing is encoded to. Throws Error (bad input) for a tokenizer
/// that llama.cpp would not apply as we do.
GgufMetadata gguf_tokenizer(const Tokenizer* tokenizer, std::int64_t vocab, const GgufTextTokens& text);

/// The tokenizer.json of what is there; empty if it is no byte-level BPE with a split that we have.
std::string gguf_tokenizer_json(const GgufHeader& header);

}  // namespace tetrad
