// SPDX-License-Identifier: Apache-2.0
#pragma once
// tokenizer.json, as Hugging Face `tokenizers` writes and reads it: byte-level BPE.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "tetrad/tokenizer/bpe.h"
#include "tetrad/tokenizer/byte_spelling.h"

namespace tetrad {

/// Refuses, with Error (bad input), whatever would make this tokenizer encode differently from the package
/// that the file is meant for: another model, normalizer, pre-tokenizer or split pattern, dropout, and so on.
/// Padding and truncation are about calls, not about text, and are ignored.
std::unique_ptr<BpeTokenizer> parse_tokenizer_json(std::string_view text, std::string_view where);
std::unique_ptr<BpeTokenizer> load_tokenizer_json(const std::filesystem::path& path);

std::string to_tokenizer_json(const BpeDefinition& definition);

}  // namespace tetrad
