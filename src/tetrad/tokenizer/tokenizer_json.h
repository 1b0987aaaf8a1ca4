#pragma once
// tokenizer.json, as Hugging Face `tokenizers` writes and reads it: byte-level BPE.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "tetrad/tokenizer/bpe.h"

namespace tetrad {

/// Refuses, with Error (bad input), whatever would make this tokenizer encode differently from the package
/// that the file is meant for: another model, normalizer, pre-tokenizer or split pattern, dropout, and so on.
/// Padding, truncation and post-processors are about calls, not about text, and are ignored.
std::unique_ptr<BpeTokenizer> parse_tokenizer_json(std::string_view text, std::string_view where);
std::unique_ptr<BpeTokenizer> load_tokenizer_json(const std::filesystem::path& path);

std::string to_tokenizer_json(const BpeDefinition& definition);

/// The spelling of bytes in tokenizer.json: printable bytes stand for themselves as Latin-1, the other 68 are
/// U+0100 upward.
std::string spell_bytes(std::string_view bytes);

/// The bytes that are spelled so; empty if `spelling` has any other character.
std::string unspell_bytes(std::string_view spelling);

}  // namespace tetrad
