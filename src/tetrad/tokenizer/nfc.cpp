// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/nfc.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tetrad/tokenizer/unicode.h"

namespace tetrad {
namespace {

#include "tetrad/tokenizer/nfc_tables.inc"

constexpr char32_t kPoints = 0x110000;  //!< end of Unicode; larger values are bytes that are not UTF-8

/// Korean syllables are computed: L + V and LV + T.
constexpr char32_t kSyllables = 0xAC00;
constexpr char32_t kLeads = 0x1100;
constexpr char32_t kVowels = 0x1161;
constexpr char32_t kTails = 0x11A7;  //!< one before the first: a syllable may have none
constexpr char32_t kLeadCount = 19;
constexpr char32_t kVowelCount = 21;
constexpr char32_t kTailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

/// Reads the numbers that scripts/generate-unicode-tables writes.
class NumberReader {
 public:
  explicit NumberReader(std::string_view text) : text_(text) {}

  std::uint32_t next() {
    std::uint32_t value = 0;
    for (;;) {
      const char c = text_[at_++];
      const int digit = c <= '9' && c >= '0'   ? c - '0'
                        : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                        : c >= 'a' && c <= 'z' ? c - 'a' + 36
                        : c == '-'             ? 62
                                               : 63;
      value = value << 5 | static_cast<std::uint32_t>(digit & 31);
      if (digit < 32) return value;
    }
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

class Tables {
 public:
  Tables() {
    for_each_row(kComposed, [&](char32_t whole, char32_t first, char32_t second) {
      parts_[whole] = {first, second};
      wholes_[key(first, second)] = whole;
      unsure_[second] = true;
    });
    for_each_row(kDecomposed, [&](char32_t whole, char32_t first, char32_t second) {
      parts_[whole] = {first, second};
      unsure_[whole] = true;
    });
    for_each_row(kMarks, [&](char32_t first, char32_t more, char32_t kind) {
      for (char32_t point = first; point <= first + more; ++point) {
        classes_[point] = static_cast<std::uint8_t>(kind);
        unsure_[point] = true;
      }
    });
    std::fill_n(unsure_.begin() + kVowels, kVowelCount, true);
    std::fill_n(unsure_.begin() + kTails + 1, kTailCount - 1, true);
  }

  /// Whether normalization may change this character, or join it with one before it.
  bool is_unsure(char32_t point) const { return unsure_[point]; }

  /// The canonical combining class: marks are ordered by it; 0 for what is no mark.
  std::uint8_t combining_class(char32_t point) const {
    if (point < kPoints && !unsure_[point]) return 0;
    const auto found = classes_.find(point);
    return found == classes_.end() ? 0 : found->second;
  }

  void decompose(char32_t point, std::u32string& out) const {
    if (const char32_t syllable = point - kSyllables; point >= kSyllables && syllable < kSyllableCount) {
      out.push_back(kLeads + syllable / (kVowelCount * kTailCount));
      out.push_back(kVowels + syllable / kTailCount % kVowelCount);
      if (syllable % kTailCount != 0) out.push_back(kTails + syllable % kTailCount);
      return;
    }
    const auto found = parts_.find(point);
    if (found == parts_.end()) {
      out += point;
      return;
    }
    decompose(found->second.first, out);
    if (found->second.second != 0) decompose(found->second.second, out);
  }

  /// What the two are together; 0 if they stay two.
  char32_t compose(char32_t first, char32_t second) const {
    if (first >= kLeads && first < kLeads + kLeadCount && second >= kVowels && second < kVowels + kVowelCount)
      return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
    if (first >= kSyllables && first < kSyllables + kSyllableCount &&
        (first - kSyllables) % kTailCount == 0 && second > kTails && second < kTails + kTailCount)
      return first + (second - kTails);
    const auto found = wholes_.find(key(first, second));
    return found == wholes_.end() ? 0 : found->second;
  }

 private:
  static std::uint64_t key(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

  template <typename Body>
  static void for_each_row(std::string_view table, const Body& body) {
    NumberReader reader(table);
    const std::uint32_t rows = reader.next();
    char32_t point = 0;
    for (std::uint32_t i = 0; i < rows; ++i) {
      point += reader.next();
      const char32_t second = reader.next();
      body(point, second, char32_t{reader.next()});
    }
  }

  std::unordered_map<char32_t, std::pair<char32_t, char32_t>> parts_;  //!< second 0: only one
  std::unordered_map<std::uint64_t, char32_t> wholes_;
  std::unordered_map<char32_t, std::uint8_t> classes_;
  std::vector<bool> unsure_ = std::vector<bool>(kPoints);
};

/// Marks behind a character in the order of their classes; those of one class stay in theirs.
void order_marks(std::u32string& points, const Tables& tables) {
  const auto is_mark = [&](char32_t point) { return tables.combining_class(point) != 0; };
  for (auto begin = points.begin(); begin != points.end();) {
    begin = std::find_if(begin, points.end(), is_mark);
    const auto end = std::find_if_not(begin, points.end(), is_mark);
    std::ranges::stable_sort(begin, end, {}, [&](char32_t point) { return tables.combining_class(point); });
    begin = end;
  }
}

/// Joins characters with marks that follow them, unless another mark of the same or a higher class stands
/// between.
void compose(std::u32string& points, const Tables& tables) {
  std::size_t kept = 0;  // points[0, kept) are done
  std::size_t starter = points.size();
  int last_class = -1;  // class of the last mark after the starter; -1: none
  for (const char32_t point : points) {
    const int kind = tables.combining_class(point);
    const char32_t whole =
        starter < points.size() && last_class < kind ? tables.compose(points[starter], point) : 0;
    if (whole != 0) {
      points[starter] = whole;
      continue;
    }
    last_class = kind;
    if (kind == 0) {
      starter = kept;
      last_class = -1;
    }
    points[kept++] = point;
  }
  points.resize(kept);
}

}  // namespace

std::string normalize_nfc(std::string_view text) {
  static const Tables tables;
  constexpr std::uint8_t kFirstUnsure = 0xCC;  // first byte of U+0300; everything before is in NFC
  const auto is_plain = [](char c) { return static_cast<std::uint8_t>(c) < kFirstUnsure; };
  if (std::ranges::all_of(text, is_plain)) return std::string(text);
  std::u32string points;
  bool unsure = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t at = begin;
    const char32_t point = next_code_point(text, begin);
    const bool broken = point == 0 && text[at] != '\0';
    points += broken ? kPoints + static_cast<std::uint8_t>(text[at]) : point;
    unsure = unsure || (!broken && tables.is_unsure(point));
  }
  if (!unsure) return std::string(text);
  std::u32string decomposed;
  for (const char32_t point : points) tables.decompose(point, decomposed);
  order_marks(decomposed, tables);
  compose(decomposed, tables);
  std::string result;
  for (const char32_t point : decomposed)
    if (point >= kPoints)
      result += static_cast<char>(point - kPoints);
    else
      append_utf8(result, point);
  return result;
}

}  // namespace tetrad
