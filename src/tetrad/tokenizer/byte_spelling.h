// SPDX-License-Identifier: Apache-2.0
#pragma once
// How tokenizer.json spells bytes.

#include <string>
#include <string_view>

namespace tetrad {

/// Printable bytes stand for themselves as Latin-1, the other 68 are U+0100 upward.
std::string spell_bytes(std::string_view bytes);

/// The bytes that are spelled so; empty if `spelling` has any other character.
std::string unspell_bytes(std::string_view spelling);

}  // namespace tetrad
