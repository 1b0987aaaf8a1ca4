// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/split.h"

#include <algorithm>
#include <array>

#include "tetrad/tokenizer/unicode.h"

namespace tetrad {
namespace {

bool is_newline(char c) { return c == '\r' || c == '\n'; }

/// The end of the run of characters of these classes that begins at `begin`.
std::size_t run_end(std::string_view text, std::size_t begin, CharSet set) {
  while (begin < text.size()) {
    const Character next = character_at(text, begin);
    if (!set.has(next.kind)) break;
    begin += next.bytes;
  }
  return begin;
}

bool has_at(std::string_view text, std::size_t begin, CharSet set) {
  return begin < text.size() && set.has(character_at(text, begin).kind);
}

/// The end of an English contraction ('s 't 'm 'd 're 've 'll) at `begin`, or `begin` if there is none.
std::size_t contraction_end(std::string_view text, std::size_t begin) {
  static constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t",  "'re", "'ve",
                                                                    "'m", "'ll", "'d"};
  for (const std::string_view contraction : kContractions)
    if (text.substr(begin, contraction.size()) == contraction) return begin + contraction.size();
  return begin;
}

/// The same in any case. Unicode has one more small s: U+017F.
std::size_t any_case_contraction_end(std::string_view text, std::size_t begin) {
  constexpr std::string_view kLongS = "'\u017F";
  if (begin >= text.size() || text[begin] != '\'') return begin;
  const auto lower = [&](std::size_t i) {
    const char c = begin + i < text.size() ? text[begin + i] : '\0';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = lower(1);
  const char second = lower(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return begin + 3;
  if (first == 'l' && second == 'l') return begin + 3;
  return text.substr(begin, kLongS.size()) == kLongS ? begin + kLongS.size() : begin;
}

/// White space at `begin`: all of it at the end of the text, else all but its last character, which is left
/// to what follows; a single one stands alone.
std::size_t space_end(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  std::size_t last = begin;
  while (end < text.size()) {
    const Character next = character_at(text, end);
    if (next.kind != CharClass::space) break;
    last = end;
    end += next.bytes;
  }
  return end == text.size() || last == begin ? end : last;
}

/// The same, except that white space with newlines ends behind the last of them.
std::size_t space_or_lines_end(std::string_view text, std::size_t begin) {
  const std::size_t run = run_end(text, begin, CharClass::space);
  for (std::size_t end = run; end > begin; --end)
    if (is_newline(text[end - 1])) return end;
  return space_end(text, begin);
}

/// '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ without a regular expression
/// engine: one character decides which alternative can match.
std::size_t next_gpt2(std::string_view text, std::size_t begin) {
  if (text[begin] == '\'') {
    const std::size_t end = contraction_end(text, begin);
    if (end > begin) return end;
  }
  const std::size_t body = text[begin] == ' ' && begin + 1 < text.size() ? begin + 1 : begin;
  const Character first = character_at(text, body);
  if (first.kind == CharClass::space) return space_end(text, begin);
  const CharSet set = kLetters.has(first.kind) ? kLetters : kNumbers.has(first.kind) ? kNumbers : kSymbols;
  return run_end(text, body + first.bytes, set);
}

/// Whether [^\r\n\p{L}\p{N}], the character that may lead a word, matches at `begin`.
bool is_lead(std::string_view text, std::size_t begin, CharClass kind) {
  return !(kLetters | kNumbers).has(kind) && !is_newline(text[begin]);
}

/// [^\r\n\p{L}\p{N}]?\p{L}+ at `begin`, or `begin` if it does not match.
std::size_t word_end(std::string_view text, std::size_t begin) {
  const Character first = character_at(text, begin);
  const std::size_t letters = is_lead(text, begin, first.kind) ? begin + first.bytes : begin;
  return has_at(text, letters, kLetters) ? run_end(text, letters, kLetters) : begin;
}

constexpr CharSet kUpperSide = CharClass::upper | CharClass::caseless | CharClass::mark;
constexpr CharSet kLowerSide = CharClass::lower | CharClass::caseless | CharClass::mark;

/// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at `begin`, or `begin`. If nothing of the
/// second kind follows the first run, the run gives back characters until one of them is of both kinds.
std::size_t falling_case_end(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  std::size_t after_both = begin;  // behind the last character that is of both kinds
  while (end < text.size()) {
    const Character next = character_at(text, end);
    if (!kUpperSide.has(next.kind)) break;
    end += next.bytes;
    if (kLowerSide.has(next.kind)) after_both = end;
  }
  return has_at(text, end, CharClass::lower) ? run_end(text, end, kLowerSide) : after_both;
}

/// Both alternatives that cut words where capitals begin, each with and without the leading character:
/// X?U*L+ and, where that does not match, X?U+L*.
std::size_t cased_word_end(std::string_view text, std::size_t begin) {
  const Character first = character_at(text, begin);
  const std::size_t body = is_lead(text, begin, first.kind) ? begin + first.bytes : begin;
  for (const std::size_t from : {body, begin})
    if (const std::size_t end = falling_case_end(text, from); end > from) return end;
  for (const std::size_t from : {body, begin})
    if (const std::size_t end = run_end(text, from, kUpperSide); end > from) return end;
  return begin;
}

/// How the successors of the GPT-2 split differ.
struct ContractionsFirst {
  static constexpr bool kContractionFirst = true;
  static constexpr bool kContractionAfterWord = false;
  static constexpr bool kCased = false;
  static constexpr bool kSlashes = false;   //!< after symbols [\r\n/]*, not [\r\n]*
  static constexpr bool kWholeEnd = false;  //!< white space at the end of the text is one piece
};
struct Llama3 : ContractionsFirst {
  static constexpr int kDigitsAtOnce = 3;
};
struct Cl100k : Llama3 {
  static constexpr bool kWholeEnd = true;
};
struct Qwen2 : ContractionsFirst {
  static constexpr int kDigitsAtOnce = 1;
};
struct Tekken : ContractionsFirst {
  static constexpr bool kContractionFirst = false;
  static constexpr bool kCased = true;
  static constexpr int kDigitsAtOnce = 1;
  static constexpr bool kSlashes = true;
};
struct O200k : Tekken {
  static constexpr bool kContractionAfterWord = true;
  static constexpr int kDigitsAtOnce = 3;
};

template <typename Style>
std::size_t next_modern(std::string_view text, std::size_t begin) {
  if constexpr (Style::kContractionFirst) {
    const std::size_t end = any_case_contraction_end(text, begin);
    if (end > begin) return end;
  }
  const std::size_t word = Style::kCased ? cased_word_end(text, begin) : word_end(text, begin);
  if (word > begin) return Style::kContractionAfterWord ? any_case_contraction_end(text, word) : word;

  if (has_at(text, begin, kNumbers)) {
    std::size_t end = begin;
    for (int i = 0; i < Style::kDigitsAtOnce && has_at(text, end, kNumbers); ++i)
      end += character_at(text, end).bytes;
    return end;
  }
  const std::size_t symbols = text[begin] == ' ' ? begin + 1 : begin;
  if (has_at(text, symbols, kSymbols)) {
    std::size_t end = run_end(text, symbols, kSymbols);
    while (end < text.size() && (is_newline(text[end]) || (Style::kSlashes && text[end] == '/'))) ++end;
    return end;
  }
  if (Style::kWholeEnd && run_end(text, begin, CharClass::space) == text.size()) return text.size();
  return space_or_lines_end(text, begin);
}

std::size_t next_whole(std::string_view text, std::size_t) { return text.size(); }

constexpr CharSet kAnyNumbers = kNumbers | CharClass::late_number;

template <bool one_by_one>
std::size_t next_digits(std::string_view text, std::size_t begin) {
  const Character first = character_at(text, begin);
  if (one_by_one && kAnyNumbers.has(first.kind)) return begin + first.bytes;
  return run_end(text, begin + first.bytes, kAnyNumbers.has(first.kind) ? kAnyNumbers : ~kAnyNumbers);
}

constexpr Split kSplits[] = {
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", next_gpt2},
    {"llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_modern<Llama3>},
    // The pattern has `$` in tiktoken's program, which would be the end of a line to the `tokenizers`
    // package.
    {"cl100k",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_modern<Cl100k>},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_modern<Qwen2>},
    {"o200k",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_modern<O200k>},
    {"tekken",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_modern<Tekken>},
};

constexpr Split kOtherSplits[] = {
    {"whole", "", next_whole},
    {"digits", "", next_digits<true>},
    {"numbers", "", next_digits<false>},
};

struct Spelling {
  std::string_view pattern;
  std::string_view name;
};

constexpr Spelling kSpellings[] = {
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "gpt2"},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
     R"(\s*[\r\n]|\s+(?!\S)|\s+)",
     "llama3"},
};

}  // namespace

const Split& gpt2_split() { return kSplits[0]; }
const Split& whole_split() { return kOtherSplits[0]; }
const Split& digit_split() { return kOtherSplits[1]; }
const Split& number_split() { return kOtherSplits[2]; }

const Split* split_of_name(std::string_view name) {
  const auto* const found = std::ranges::find(kSplits, name, &Split::name);
  if (found != std::end(kSplits)) return found;
  const auto* const other = std::ranges::find(kOtherSplits, name, &Split::name);
  return other == std::end(kOtherSplits) ? nullptr : other;
}

const Split* find_split(std::string_view pattern) {
  const auto* const spelling = std::ranges::find(kSpellings, pattern, &Spelling::pattern);
  if (spelling != std::end(kSpellings)) return split_of_name(spelling->name);
  const auto* const found = std::ranges::find(kSplits, pattern, &Split::pattern);
  return found == std::end(kSplits) ? nullptr : found;
}

std::span<const Split> regex_splits() { return kSplits; }

std::size_t safe_cut(std::string_view text, std::size_t at_least) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (std::size_t i = std::max(at_least, std::size_t{1}); i < text.size(); ++i)
    if ((text[i] == ' ' || text[i] == '\n') && is_letter(text[i - 1])) return i;
  return text.size();
}

}  // namespace tetrad
