// SPDX-License-Identifier: Apache-2.0
#pragma once
// A shuffled order that is computed, not stored.

#include <bit>
#include <cstdint>

#include "tetrad/numerics/philox.h"

namespace tetrad {

/// One of many permutations of [0, count), chosen by key and epoch: where `index` goes. A Feistel network on
/// the next even number of bits is a permutation whatever its round function; values beyond `count` are sent
/// through again until they fall inside (at most four times as many steps on average).
constexpr std::int64_t permuted(std::int64_t index, std::int64_t count, std::uint64_t key,
                                std::uint64_t epoch) {
  constexpr std::uint32_t kRounds = 6;
  if (count < 2) return index;
  const int half = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1)) + 1) / 2;
  const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << half) - 1);
  auto value = static_cast<std::uint64_t>(index);
  do {
    auto left = static_cast<std::uint32_t>(value >> half);
    auto right = static_cast<std::uint32_t>(value) & mask;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const PhiloxWords words = philox4x32_10(
          {right, round, static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32)},
          {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
      const std::uint32_t next = left ^ (words[0] & mask);
      left = right;
      right = next;
    }
    value = std::uint64_t{left} << half | right;
  } while (value >= static_cast<std::uint64_t>(count));
  return static_cast<std::int64_t>(value);
}

}  // namespace tetrad
