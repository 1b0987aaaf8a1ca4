// SPDX-License-Identifier: Apache-2.0
#pragma once
// tiktoken files: one token per line, its bytes in base64 and its rank. They say nothing about the split and
// the special tokens, which belong to the encoding: its name stands before the path (llama3:tokenizer.model),
// or the file has the name under which it was published (cl100k_base.tiktoken).

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tetrad/tokenizer/bpe.h"

namespace tetrad {

struct TiktokenSpec {
  std::string encoding;  //!< r50k, p50k, cl100k, o200k, llama3 or llama3.1
  std::string path;
};

/// What a user named, if it is a tiktoken file. Throws Error (bad input) for one of an unknown encoding.
std::optional<TiktokenSpec> tiktoken_spec(const std::string& spec);

/// `name` is that of the encoding. Any pair whose bytes are a token may merge, the lowest rank first: the
/// merges are listed so, and the result is a byte-level BPE like that of a tokenizer.json. The special tokens
/// are those of the encoding; a file with another number of tokens than the published one gets <|endoftext|>
/// behind its last (llama3, llama3.1: always 256 behind the last). Throws Error (bad input).
std::unique_ptr<BpeTokenizer> parse_tiktoken(std::string_view text, std::string_view name,
                                             std::string_view where);
std::unique_ptr<BpeTokenizer> load_tiktoken(const TiktokenSpec& spec);

}  // namespace tetrad
