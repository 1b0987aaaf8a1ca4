// SPDX-License-Identifier: Apache-2.0
#include "tetrad/plot/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tetrad {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

/// Bytes of the character that the text begins with; 0 if that is not UTF-8 or not fit to be shown.
std::size_t shown_length(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  unsigned point = lead & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xc0U) != 0x80) return 0;
    point = point << 6 | (byte_at(text, i) & 0x3fU);
  }
  constexpr std::array<unsigned, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  if (point < kSmallest[length] || point > 0x10ffff) return 0;
  const bool control = point < 0xa0;
  const bool direction = (point >= 0x200e && point <= 0x200f) || (point >= 0x2028 && point <= 0x202e) ||
                         (point >= 0x2066 && point <= 0x2069);
  const bool no_character = (point >= 0xd800 && point < 0xe000) || (point & 0xfffeU) == 0xfffe;
  return control || direction || no_character ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text, bool ascii) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = shown_length(text);
    if (length == 0 || (ascii && length > 1))
      result += '?';
    else
      result += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

std::size_t character_count(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned>(c) & 0xc0U) != 0x80; }));
}

std::string escape_xml(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string format_count(double count) {
  constexpr std::array<const char*, 6> kSuffixes = {"", "k", "M", "G", "T", "P"};
  std::size_t i = 0;
  // 999.5 would be written as 1e+03.
  for (; i + 1 < kSuffixes.size() && std::abs(count) >= 999.5; ++i) count /= 1000;
  return fmt::format("{:.3g}{}", count, kSuffixes[i]);
}

}  // namespace tetrad
