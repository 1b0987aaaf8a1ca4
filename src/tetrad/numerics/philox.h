// SPDX-License-Identifier: Apache-2.0
#pragma once
// Philox4x32-10 (Salmon et al., SC 2011): a counter-based generator. Nothing is stored and nothing can be
// lost: the random bits of an element are a function of where the element is, not of who computes it or when.

#include <array>
#include <cstdint>

#include "tetrad/numerics/host_device.h"

namespace tetrad {

using PhiloxWords = std::array<std::uint32_t, 4>;

inline constexpr int kPhiloxRounds = 10;
/// What the two words of a counter are multiplied by.
inline constexpr std::uint32_t kPhiloxFirst = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxSecond = 0xCD9E8D57u;

/// What the two words of the key grow by from round to round.
inline constexpr std::uint32_t kPhiloxLowStep = 0x9E3779B9u;
inline constexpr std::uint32_t kPhiloxHighStep = 0xBB67AE85u;

TETRAD_HD constexpr void philox_round(PhiloxWords& counter, std::uint32_t low, std::uint32_t high) {
  const std::uint64_t p0 = std::uint64_t{kPhiloxFirst} * counter[0];
  const std::uint64_t p1 = std::uint64_t{kPhiloxSecond} * counter[2];
  counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ low, static_cast<std::uint32_t>(p1),
             static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ high, static_cast<std::uint32_t>(p0)};
}

TETRAD_HD constexpr PhiloxWords philox4x32_10(PhiloxWords counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    philox_round(counter, key[0], key[1]);
    key = {key[0] + kPhiloxLowStep, key[1] + kPhiloxHighStep};
  }
  return counter;
}

/// What is the same for all streams of a microbatch.
struct RandomKey {
  std::uint64_t seed = 0;        //!< of the run
  std::uint32_t step = 0;        //!< optimizer step
  std::uint32_t microbatch = 0;  //!< within the step
};

/// The random bits of one use of one tensor in one microbatch of one step. Sixteen consecutive elements along
/// the block axis are a group and share one Philox call: element j of group g gets byte j.
struct RandomStream {
  static constexpr int kGroup = 16;

  std::uint64_t seed = 0;        //!< the run's seed
  std::uint32_t step = 0;        //!< optimizer step
  std::uint32_t microbatch = 0;  //!< within the step
  std::uint32_t tensor = 0;      //!< distinct for each tensor *and* each of its uses (row-wise, column-wise)

  /// The same tensor's stream in another microbatch.
  TETRAD_HD constexpr RandomStream with(const RandomKey& key) const {
    return {key.seed, key.step, key.microbatch, tensor};
  }

  TETRAD_HD constexpr PhiloxWords group(std::uint32_t index) const {
    return philox4x32_10({step, microbatch, tensor, index},
                         {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  }

  TETRAD_HD static constexpr std::uint32_t byte(const PhiloxWords& words, int j) {
    return (words[static_cast<std::size_t>(j / 4)] >> (8 * (j % 4))) & 0xFFu;
  }
};

}  // namespace tetrad
