// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <string>

namespace tetrad {
namespace {

struct ClassRange {
  std::uint32_t first;
  std::uint32_t last;
  CharClass kind;
};

constexpr ClassRange kRanges[] = {
#include "tetrad/tokenizer/unicode_classes.inc"
};

constexpr CharClass search(char32_t point) {
  const auto* const range = std::ranges::lower_bound(kRanges, point, {}, &ClassRange::last);
  return range != std::end(kRanges) && range->first <= point ? range->kind : CharClass::other;
}

constexpr std::size_t kAscii = 128;
constexpr std::array<CharClass, kAscii> kAsciiClasses = [] {
  // NOLINTNEXTLINE(bugprone-invalid-enum-default-initialization): all of them are set
  std::array<CharClass, kAscii> classes{};
  for (std::size_t i = 0; i < kAscii; ++i) classes[i] = search(static_cast<char32_t>(i));
  return classes;
}();

/// A code point and the bytes it takes; 0 bytes: not valid UTF-8.
struct Decoded {
  char32_t point = 0;
  std::size_t bytes = 0;
};

Decoded decode(std::string_view text, std::size_t begin) {
  const auto byte = [&](std::size_t i) {
    return begin + i < text.size() ? static_cast<std::uint8_t>(text[begin + i]) : std::uint32_t{0};
  };
  const auto is_continuation = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead >= 0xC2 && lead <= 0xDF && is_continuation(1)) return {(lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu), 2};
  if ((lead & 0xF0u) == 0xE0 && is_continuation(1) && is_continuation(2)) {
    const char32_t point = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
    if (point >= 0x800 && !surrogate) return {point, 3};
  }
  if (lead >= 0xF0 && lead <= 0xF4 && is_continuation(1) && is_continuation(2) && is_continuation(3)) {
    const char32_t point =
        (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    if (point >= 0x10000 && point <= 0x10FFFF) return {point, 4};
  }
  return {};
}

/// How many bytes at `begin`, which begin no character, could have begun one if more had followed; at
/// least 1.
std::size_t broken_bytes(std::string_view text, std::size_t begin) {
  const auto lead = static_cast<std::uint8_t>(text[begin]);
  const std::size_t length = lead >= 0xF0 && lead <= 0xF4   ? 4
                             : lead >= 0xE0 && lead <= 0xEF ? 3
                             : lead >= 0xC2 && lead <= 0xDF ? 2
                                                            : 1;
  // The second byte decides whether this is an overlong form, a surrogate or beyond U+10FFFF.
  const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  std::size_t count = 1;
  for (; count < length && begin + count < text.size(); ++count) {
    const auto byte = static_cast<std::uint8_t>(text[begin + count]);
    if (byte < (count == 1 ? low : 0x80) || byte > (count == 1 ? high : 0xBF)) break;
  }
  return count;
}

}  // namespace

CharClass char_class(char32_t point) { return point < kAscii ? kAsciiClasses[point] : search(point); }

Character character_at(std::string_view text, std::size_t begin) {
  const auto lead = static_cast<std::uint8_t>(text[begin]);
  if (lead < kAscii) return {1, kAsciiClasses[lead]};
  const Decoded decoded = decode(text, begin);
  if (decoded.bytes == 0) return {};
  return {decoded.bytes, search(decoded.point)};
}

Character character_before(std::string_view text, std::size_t end) {
  constexpr std::size_t kLongest = 4;
  for (std::size_t bytes = 2; bytes <= std::min(kLongest, end); ++bytes)
    if (decode(text, end - bytes).bytes == bytes) return character_at(text, end - bytes);
  return character_at(text.substr(0, end), end - 1);
}

void append_utf8(std::string& text, char32_t point) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

char32_t next_code_point(std::string_view text, std::size_t& begin) {
  const Decoded decoded = decode(text, begin);
  begin += std::max(decoded.bytes, std::size_t{1});
  return decoded.point;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    if (const std::size_t size = decode(bytes, i).bytes; size > 0) {
      text.append(bytes, i, size);
      i += size;
    } else {
      append_utf8(text, 0xFFFD);
      i += broken_bytes(bytes, i);
    }
  }
  return text;
}

}  // namespace tetrad
