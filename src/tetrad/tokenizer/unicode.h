// SPDX-License-Identifier: Apache-2.0
#pragma once
// What pre-tokenizers need to know about characters.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tetrad {

/// The classes that split patterns distinguish; a character is in exactly one. They are those of Unicode 16,
/// as in the regular expressions of the `tokenizers` package.
enum class CharClass : std::uint16_t {
  other = 1,
  upper = 2,          //!< Lu, Lt
  lower = 4,          //!< Ll
  caseless = 8,       //!< Lm, Lo
  mark = 16,          //!< M
  decimal = 32,       //!< Nd, Nl
  numeral = 64,       //!< No
  space = 128,        //!< \s
  joiner = 256,       //!< in \w, but no letter, mark or number: Pc, U+200C, U+200D, circled letters
  late_number = 512,  //!< numbers since Unicode 17, which only the package's Digits knows
};

/// Several classes.
class CharSet {
 public:
  constexpr CharSet(CharClass kind) : bits_(static_cast<std::uint16_t>(kind)) {}  // NOLINT: a class is a set
  constexpr bool has(CharClass kind) const { return (bits_ & static_cast<std::uint16_t>(kind)) != 0; }
  friend constexpr CharSet operator|(CharSet a, CharSet b) { return CharSet(a.bits_ | b.bits_); }
  constexpr CharSet operator~() const { return CharSet(~bits_); }

 private:
  constexpr explicit CharSet(int bits) : bits_(static_cast<std::uint16_t>(bits)) {}

  std::uint16_t bits_;
};
constexpr CharSet operator|(CharClass a, CharClass b) { return CharSet(a) | CharSet(b); }

inline constexpr CharSet kLetters = CharClass::upper | CharClass::lower | CharClass::caseless;  //!< \p{L}
inline constexpr CharSet kNumbers = CharClass::decimal | CharClass::numeral;                    //!< \p{N}
inline constexpr CharSet kSymbols = ~(kLetters | kNumbers | CharClass::space);  //!< [^\s\p{L}\p{N}]
inline constexpr CharSet kWordCharacters =
    kLetters | CharClass::mark | CharClass::decimal | CharClass::joiner;  //!< \w

CharClass char_class(char32_t point);

/// One character of a text. A byte that begins no valid UTF-8 sequence counts as a character of its own, of
/// class `other`, so that any bytes at all can be split.
struct Character {
  std::size_t bytes = 1;
  CharClass kind = CharClass::other;
};

/// `begin` < text.size().
Character character_at(std::string_view text, std::size_t begin);

/// The character that ends at `end` > 0.
Character character_before(std::string_view text, std::size_t end);

/// Appends the UTF-8 form.
void append_utf8(std::string& text, char32_t point);

/// The next code point of valid UTF-8, and moves `begin` behind it.
char32_t next_code_point(std::string_view text, std::size_t& begin);

/// `bytes` with U+FFFD in the place of what is not UTF-8: one for every longest part that could have begun a
/// character, which is how most programs do it, the `tokenizers` package among them.
std::string replace_invalid_utf8(std::string_view bytes);

}  // namespace tetrad
