// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/split.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tetrad/tokenizer/unicode.h"

namespace tetrad {
namespace {

std::vector<std::string> pieces_of(std::string_view text, const Split& split = gpt2_split()) {
  std::vector<std::string> pieces;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = split.next(text, begin);
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

Pieces pieces_by(const char* name, std::string_view text) { return pieces_of(text, *split_of_name(name)); }

TEST(Llama3Split, FollowsThePattern) {
  const auto pieces = [](std::string_view text) { return pieces_by("llama3", text); };
  EXPECT_EQ(pieces("Hello world"), (Pieces{"Hello", " world"}));
  EXPECT_EQ(pieces("I'LL we'Re don't 'tis"), (Pieces{"I", "'LL", " we", "'Re", " don", "'t", " '", "tis"}));
  EXPECT_EQ(pieces("it'\u017F it'\u017Fo"), (Pieces{"it", "'\u017F", " it", "'\u017F", "o"}));
  EXPECT_EQ(pieces("1234567 89"), (Pieces{"123", "456", "7", " ", "89"}));
  EXPECT_EQ(pieces("\tword (word \u00a0word"), (Pieces{"\tword", " (", "word", " ", "\u00a0word"}));
  EXPECT_EQ(pieces("a;\r\n\n b"), (Pieces{"a", ";\r\n\n", " b"}));
  EXPECT_EQ(pieces("a \n \n  b"), (Pieces{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(pieces("a\nb"), (Pieces{"a", "\n", "b"}));
  EXPECT_EQ(pieces("a \n  "), (Pieces{"a", " \n", "  "}));
  EXPECT_EQ(pieces("e\u0301e"), (Pieces{"e", "\u0301e"}));  // a mark may lead a word
}

TEST(Cl100kSplit, TakesWhiteSpaceAtTheEndWhole) {
  EXPECT_EQ(pieces_by("cl100k", "a \n  b \n  "), (Pieces{"a", " \n", " ", " b", " \n  "}));
}

TEST(Qwen2Split, TakesDigitsOneByOne) {
  EXPECT_EQ(pieces_by("qwen2", "x12 3'S"), (Pieces{"x", "1", "2", " ", "3", "'S"}));
}

TEST(CasedSplits, CutWhereCapitalsBegin) {
  EXPECT_EQ(pieces_by("o200k", "HelloWorld HTTPServer camelCase"),
            (Pieces{"Hello", "World", " HTTPServer", " camel", "Case"}));
  EXPECT_EQ(pieces_by("o200k", "ABC DON'T don't"), (Pieces{"ABC", " DON'T", " don't"}));
  EXPECT_EQ(pieces_by("tekken", "DON'T don't 12"), (Pieces{"DON", "'T", " don", "'t", " ", "1", "2"}));
  EXPECT_EQ(pieces_by("o200k", "a//\n/b 1234"), (Pieces{"a", "//\n/", "b", " ", "123", "4"}));
  // \u6f22 is of both kinds: capitals run over it, and give back down to it where no small letter follows.
  EXPECT_EQ(pieces_by("tekken", "A\u6f22BC"), (Pieces{"A\u6f22", "BC"}));
  EXPECT_EQ(pieces_by("tekken", "A\u6f22Bc"), (Pieces{"A\u6f22Bc"}));
  EXPECT_EQ(pieces_by("tekken", "\u0301 \u0301\u0301a"), (Pieces{"\u0301", " \u0301\u0301a"}));
}

TEST(DigitSplits, SetNumbersApart) {
  EXPECT_EQ(pieces_of("ab12 \u00bd3c", digit_split()), (Pieces{"ab", "1", "2", " ", "\u00bd", "3", "c"}));
  EXPECT_EQ(pieces_of("ab12 \u00bd3c", number_split()), (Pieces{"ab", "12", " ", "\u00bd3", "c"}));
  EXPECT_EQ(pieces_of("ab 12", whole_split()), (Pieces{"ab 12"}));
}

TEST(Unicode, ClassesOfCharactersOneKnows) {
  const auto expect = [](std::initializer_list<char32_t> points, CharClass kind) {
    for (const char32_t point : points)
      EXPECT_EQ(char_class(point), kind) << static_cast<std::uint32_t>(point);
  };
  expect({U'Z', U'Ω', U'\u01C5'}, CharClass::upper);
  expect({U'a', U'ß', U'ж', U'\u017F'}, CharClass::lower);
  expect({U'א', U'あ', U'漢', U'ª', U'ʰ', U'\U00020000'}, CharClass::caseless);
  expect({U'\u0301', U'\u20E3', U'\u0903'}, CharClass::mark);
  expect({U'0', U'9', U'٣', U'Ⅳ', U'\U0001D7CE'}, CharClass::decimal);
  expect({U'²', U'½', U'①'}, CharClass::numeral);
  expect({U'\t', U'\n', U'\r', U' ', U'\u0085', U'\u00A0', U'\u1680', U'\u2028', U'\u3000'},
         CharClass::space);
  expect({U'_', U'\u203F', U'\u200D', U'Ⓐ'}, CharClass::joiner);
  expect({U'\U00011DE0'}, CharClass::late_number);
  expect({U'-', U'\u001C', U'\u200B', U'€', U'🙂', U'\u0378', char32_t{0x10FFFF}}, CharClass::other);
}

TEST(Unicode, SetsAreUnionsOfClasses) {
  EXPECT_TRUE(kLetters.has(CharClass::lower));
  EXPECT_FALSE(kLetters.has(CharClass::mark));
  EXPECT_TRUE(kSymbols.has(CharClass::mark));
  EXPECT_TRUE(kSymbols.has(CharClass::late_number));
  EXPECT_FALSE(kSymbols.has(CharClass::space));
  EXPECT_TRUE(kWordCharacters.has(CharClass::joiner));
}

TEST(Unicode, TheCharacterBefore) {
  const std::string text = "a\u6f22\xFF\u0301";
  EXPECT_EQ(character_before(text, text.size()).kind, CharClass::mark);
  EXPECT_EQ(character_before(text, text.size()).bytes, 2U);
  EXPECT_EQ(character_before(text, 5).bytes, 1U);
  EXPECT_EQ(character_before(text, 4).bytes, 3U);
  EXPECT_EQ(character_before(text, 3).bytes, 1U);  // within a character
  EXPECT_EQ(character_before(text, 1).kind, CharClass::lower);
}

// Unicode's own example of the practice (chapter 3.9, table 3-8 and those around it).
TEST(Unicode, InvalidPartsAreReplacedOneByOne) {
  const auto replaced = [](std::string_view bytes) { return replace_invalid_utf8(bytes); };
  EXPECT_EQ(replaced("plain \u6f22 \U0001F642"), "plain \u6f22 \U0001F642");
  EXPECT_EQ(replaced("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(replaced("\xC0\xAF\xE0\x80\xBF"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");  // overlong
  EXPECT_EQ(replaced("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");                      // a surrogate
  EXPECT_EQ(replaced("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");            // beyond U+10FFFF
  EXPECT_EQ(replaced("\xE6\xBC"), "\uFFFD");                                      // cut short
}

TEST(Unicode, BytesThatAreNotUtf8AreCharactersOfTheirOwn) {
  for (const std::string bytes :
       {"\x80", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\xFF"}) {
    const Character first = character_at(bytes, 0);
    EXPECT_EQ(first.bytes, 1U);
    EXPECT_EQ(first.kind, CharClass::other);
  }
}

TEST(Split, AnyBytesAreSplitAndSafeCutsChangeNothing) {
  std::mt19937 random(7);
  const Pieces alphabet = {"a",  "Z",      "'s",   "'",    " ", "  ", "\n", "\t", "9",      "é",
                           "漢", "\u3000", "\xFF", "\xE2", ".", "ll", "\r", "/",  "\u0301", "É"};
  int cuts = 0;
  const auto splits = regex_splits();
  for (std::size_t round = 0; round < 3000; ++round) {
    const Split& split = splits[round % splits.size()];
    std::string text;
    for (int i = 0; i < 40; ++i) text += alphabet[random() % alphabet.size()];
    const Pieces whole = pieces_of(text, split);
    std::string joined;
    for (const std::string& piece : whole) joined += piece;
    ASSERT_EQ(joined, text);
    const std::size_t cut = safe_cut(text, text.size() / 3);
    cuts += cut < text.size() ? 1 : 0;
    Pieces parts = pieces_of(std::string_view(text).substr(0, cut), split);
    const Pieces rest = pieces_of(std::string_view(text).substr(cut), split);
    parts.insert(parts.end(), rest.begin(), rest.end());
    ASSERT_EQ(parts, whole) << split.name << ::testing::PrintToString(text);
  }
  EXPECT_GT(cuts, 1500);
}

TEST(Split, UnknownPatternsAreNotGuessed) {
  EXPECT_EQ(find_split(gpt2_split().pattern), &gpt2_split());
  for (const Split& split : regex_splits()) {
    EXPECT_EQ(find_split(split.pattern), &split);
    EXPECT_EQ(split_of_name(split.name), &split);
  }
  EXPECT_EQ(find_split(R"(\w+|\s+)"), nullptr);
  EXPECT_EQ(find_split(""), nullptr);
  EXPECT_EQ(find_split(R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
            &gpt2_split());
  EXPECT_EQ(split_of_name("gpt3"), nullptr);
}

}  // namespace
}  // namespace tetrad
