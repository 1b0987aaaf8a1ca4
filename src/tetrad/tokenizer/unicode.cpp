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

}  // namespace

CharClass char_class(char32_t point) { return point < kAscii ? kAsciiClasses[point] : search(point); }

Character character_at(std::string_view text, std::size_t begin) {
  const auto lead = static_cast<std::uint8_t>(text[begin]);
  if (lead < kAscii) return {1, kAsciiClasses[lead]};
  const Decoded decoded = decode(text, begin);
  if (decoded.bytes == 0) return {};
  return {decoded.bytes, search(decoded.point)};
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

}  // namespace tetrad
