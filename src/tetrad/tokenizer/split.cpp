#include "tetrad/tokenizer/split.h"

#include <algorithm>
#include <array>

#include "tetrad/tokenizer/unicode.h"

namespace tetrad {
namespace {

/// The end of the run of characters of this class that begins at `begin`.
std::size_t run_end(std::string_view text, std::size_t begin, CharClass kind) {
  while (begin < text.size()) {
    const Character next = character_at(text, begin);
    if (next.kind != kind) break;
    begin += next.bytes;
  }
  return begin;
}

/// The end of an English contraction ('s 't 'm 'd 're 've 'll) at `begin`, or `begin` if there is none.
std::size_t contraction_end(std::string_view text, std::size_t begin) {
  static constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t",  "'re", "'ve",
                                                                    "'m", "'ll", "'d"};
  for (const std::string_view contraction : kContractions)
    if (text.substr(begin, contraction.size()) == contraction) return begin + contraction.size();
  return begin;
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
  return run_end(text, body + first.bytes, first.kind);
}

constexpr Split kSplits[] = {
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", next_gpt2},
};

}  // namespace

const Split& gpt2_split() { return kSplits[0]; }

const Split* find_split(std::string_view pattern) {
  const auto* const found = std::ranges::find(kSplits, pattern, &Split::pattern);
  return found == std::end(kSplits) ? nullptr : found;
}

std::size_t safe_cut(std::string_view text, std::size_t at_least) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (std::size_t i = std::max(at_least, std::size_t{1}); i < text.size(); ++i)
    if ((text[i] == ' ' || text[i] == '\n') && is_letter(text[i - 1])) return i;
  return text.size();
}

}  // namespace tetrad
