#pragma once
// What pre-tokenizers need to know about characters.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tetrad {

/// The classes that the usual split patterns tell apart: \p{L}, \p{N}, \s and the rest. No character is in
/// two.
enum class CharClass : std::uint8_t { other, letter, number, space };

CharClass char_class(char32_t point);

/// One character of a text. A byte that begins no valid UTF-8 sequence counts as a character of its own, of
/// class `other`, so that any bytes at all can be split.
struct Character {
  std::size_t bytes = 1;
  CharClass kind = CharClass::other;
};

/// `begin` < text.size().
Character character_at(std::string_view text, std::size_t begin);

/// Appends the UTF-8 form.
void append_utf8(std::string& text, char32_t point);

/// The next code point of valid UTF-8, and moves `begin` behind it.
char32_t next_code_point(std::string_view text, std::size_t& begin);

}  // namespace tetrad
