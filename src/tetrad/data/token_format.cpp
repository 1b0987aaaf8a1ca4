// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/token_format.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

constexpr std::size_t kLlmcHeaderBytes = 256 * sizeof(std::int32_t);
constexpr std::int32_t kMagicU16 = 20240520;
constexpr std::int32_t kMagicU32 = 20240801;
constexpr std::int32_t kVersionU16 = 1;
constexpr std::int32_t kVersionU32 = 7;

}  // namespace

std::string_view name_of(TokenFormat format) {
  switch (format) {
    case TokenFormat::megatron:
      return "Megatron";
    case TokenFormat::llmc:
      return "llm.c";
    case TokenFormat::raw:
      return "raw";
  }
  return "";
}

std::optional<TokenLayout> llmc_layout(std::span<const std::byte> head, std::uint64_t size,
                                       std::string_view where) {
  std::array<std::int32_t, 3> header{};  // magic, version, tokens
  if (head.size() < sizeof(header)) return std::nullopt;
  std::memcpy(header.data(), head.data(), sizeof(header));
  const auto [magic, version, tokens] = header;
  if (magic != kMagicU16 && magic != kMagicU32) return std::nullopt;
  const bool narrow = magic == kMagicU16;
  TETRAD_CHECK(version == (narrow ? kVersionU16 : kVersionU32),
               "{}: version {} of llm.c's format {} is unknown; only {} can be read", where, version, magic,
               narrow ? kVersionU16 : kVersionU32);
  const auto item = static_cast<std::int64_t>(narrow ? sizeof(std::uint16_t) : sizeof(std::int32_t));
  const std::int64_t expected = static_cast<std::int64_t>(kLlmcHeaderBytes) + tokens * item;
  TETRAD_CHECK(
      tokens >= 0 && std::cmp_equal(expected, size),
      "{}: the header speaks of {} tokens, which are {} bytes with it, but the file has {}; is it cut "
      "short?",
      where, tokens, expected, size);
  return TokenLayout{TokenFormat::llmc, narrow ? DType::u16 : DType::i32, kLlmcHeaderBytes, tokens};
}

TokenLayout raw_layout(std::span<const std::byte> head, std::uint64_t size, std::string_view where) {
  TETRAD_CHECK(
      size % sizeof(std::uint16_t) == 0,
      "{}: without an .idx it must hold tokens of 16 bits, but it has {} bytes, an odd number; is it "
      "cut short, or no token file?",
      where, size);
  std::vector<std::uint16_t> first(head.size() / sizeof(std::uint16_t));
  if (!first.empty()) std::memcpy(first.data(), head.data(), first.size() * sizeof(std::uint16_t));
  bool wide = first.size() >= 16;  // a few zeros may be chance
  for (std::size_t i = 1; i < first.size(); i += 2) wide = wide && first[i] == 0;
  TETRAD_CHECK(!wide,
               "{}: every other number of 16 bits is 0, so these are tokens of 32 bits or zeros; without its "
               ".idx it can only be read with 16",
               where);
  return {TokenFormat::raw, DType::u16, 0, static_cast<std::int64_t>(size / sizeof(std::uint16_t))};
}

}  // namespace tetrad
