// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/byte_spelling.h"

#include <array>
#include <cstdint>

#include "tetrad/tokenizer/unicode.h"

namespace tetrad {
namespace {

constexpr std::array<char32_t, 256> kSpelling = [] {
  std::array<char32_t, 256> spelling{};
  char32_t unprintable = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    spelling[byte] = itself ? byte : unprintable++;
  }
  return spelling;
}();
constexpr char32_t kSpellingEnd = 0x100 + 68;

constexpr std::array<std::int16_t, kSpellingEnd> kUnspelling = [] {
  std::array<std::int16_t, kSpellingEnd> unspelling{};
  unspelling.fill(-1);
  for (std::size_t byte = 0; byte < kSpelling.size(); ++byte)
    unspelling[kSpelling[byte]] = static_cast<std::int16_t>(byte);
  return unspelling;
}();

}  // namespace

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) append_utf8(spelling, kSpelling[static_cast<std::uint8_t>(c)]);
  return spelling;
}

std::string unspell_bytes(std::string_view spelling) {
  std::string bytes;
  for (std::size_t i = 0; i < spelling.size();) {
    const char32_t point = next_code_point(spelling, i);
    if (point >= kSpellingEnd || kUnspelling[point] < 0) return {};
    bytes += static_cast<char>(kUnspelling[point]);
  }
  return bytes;
}

}  // namespace tetrad
