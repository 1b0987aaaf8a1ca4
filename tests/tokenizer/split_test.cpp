#include "tetrad/tokenizer/split.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tetrad/tokenizer/unicode.h"

namespace tetrad {
namespace {

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = gpt2_split().next(text, begin);
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

using Pieces = std::vector<std::string>;

// Expected values worked out by hand from the pattern's alternatives, first match wins.
TEST(Gpt2Split, FollowsThePattern) {
  EXPECT_EQ(pieces_of("Hello world"), (Pieces{"Hello", " world"}));
  EXPECT_EQ(pieces_of("it's we'll I'D don't"),
            (Pieces{"it", "'s", " we", "'ll", " I", "'", "D", " don", "'t"}));
  EXPECT_EQ(pieces_of("''s"), (Pieces{"''", "s"}));
  EXPECT_EQ(pieces_of("abc123 45_6"), (Pieces{"abc", "123", " 45", "_", "6"}));
  EXPECT_EQ(pieces_of("a  b"), (Pieces{"a", " ", " b"}));
  EXPECT_EQ(pieces_of("a \n  b"), (Pieces{"a", " \n ", " b"}));
  EXPECT_EQ(pieces_of("a\nb\n\nc"), (Pieces{"a", "\n", "b", "\n", "\n", "c"}));
  EXPECT_EQ(pieces_of("a   "), (Pieces{"a", "   "}));
  EXPECT_EQ(pieces_of(" "), (Pieces{" "}));
  EXPECT_EQ(pieces_of(" ("), (Pieces{" ("}));
  EXPECT_EQ(pieces_of("\t("), (Pieces{"\t", "("}));
}

TEST(Gpt2Split, KnowsUnicode) {
  EXPECT_EQ(pieces_of("héllo wörld"), (Pieces{"héllo", " wörld"}));
  EXPECT_EQ(pieces_of("漢字x٣Ⅳ½🙂。"), (Pieces{"漢字x", "٣Ⅳ½", "🙂。"}));
  EXPECT_EQ(pieces_of("a\u00a0\u3000b"), (Pieces{"a", "\u00a0", "\u3000", "b"}));
  // A combining accent is neither letter nor number nor space.
  EXPECT_EQ(pieces_of("e\u0301e"), (Pieces{"e", "\u0301", "e"}));
}

TEST(Unicode, ClassesOfCharactersOneKnows) {
  for (const char32_t letter : {U'a', U'Z', U'ß', U'Ω', U'ж', U'א', U'あ', U'漢', U'ª', U'ʰ', U'\U00020000'})
    EXPECT_EQ(char_class(letter), CharClass::letter) << static_cast<std::uint32_t>(letter);
  for (const char32_t number : {U'0', U'9', U'²', U'½', U'٣', U'Ⅳ', U'①', U'\U0001D7CE'})
    EXPECT_EQ(char_class(number), CharClass::number) << static_cast<std::uint32_t>(number);
  for (const char32_t space :
       {U'\t', U'\n', U'\r', U' ', U'\u0085', U'\u00A0', U'\u1680', U'\u2028', U'\u3000'})
    EXPECT_EQ(char_class(space), CharClass::space) << static_cast<std::uint32_t>(space);
  for (const char32_t other :
       {U'_', U'-', U'\u001C', U'\u200B', U'\u0301', U'€', U'🙂', U'\u0378', char32_t{0x10FFFF}})
    EXPECT_EQ(char_class(other), CharClass::other) << static_cast<std::uint32_t>(other);
}

TEST(Unicode, BytesThatAreNotUtf8AreCharactersOfTheirOwn) {
  for (const std::string bytes :
       {"\x80", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\xFF"}) {
    const Character first = character_at(bytes, 0);
    EXPECT_EQ(first.bytes, 1U);
    EXPECT_EQ(first.kind, CharClass::other);
  }
}

TEST(Gpt2Split, AnyBytesAreSplitAndSafeCutsChangeNothing) {
  std::mt19937 random(7);
  const Pieces alphabet = {"a", "Z", "'s", "'",      " ",    "  ",   "\n", "\t",
                           "9", "é", "漢", "\u3000", "\xFF", "\xE2", ".",  "ll"};
  int cuts = 0;
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += alphabet[random() % alphabet.size()];
    const Pieces whole = pieces_of(text);
    std::string joined;
    for (const std::string& piece : whole) joined += piece;
    ASSERT_EQ(joined, text);
    const std::size_t cut = safe_cut(text, text.size() / 3);
    cuts += cut < text.size() ? 1 : 0;
    Pieces parts = pieces_of(std::string_view(text).substr(0, cut));
    const Pieces rest = pieces_of(std::string_view(text).substr(cut));
    parts.insert(parts.end(), rest.begin(), rest.end());
    ASSERT_EQ(parts, whole) << ::testing::PrintToString(text);
  }
  EXPECT_GT(cuts, 300);
}

TEST(Split, UnknownPatternsAreNotGuessed) {
  EXPECT_EQ(find_split(gpt2_split().pattern), &gpt2_split());
  EXPECT_EQ(find_split(R"(\w+|\s+)"), nullptr);
}

}  // namespace
}  // namespace tetrad
