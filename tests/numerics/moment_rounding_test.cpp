// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding to BF16, and the random bits that AdamW's moments get for it.

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "numerics/float_bits.h"
#include "oracle/oracle.h"
#include "tetrad/numerics/adamw.h"

namespace tetrad::testing::moment_rounding_test {
namespace {

constexpr std::uint32_t kAllBits = 1u << 16;  // that 16 random bits can be

// Zero, subnormal, the last before another exponent, ordinary ones, the largest; with both signs.
constexpr std::uint32_t kUpper[] = {0x0000, 0x0001, 0x007F, 0x3F80, 0x3FFF,
                                    0x4049, 0x7F7E, 0x8000, 0xBF80, 0xFF7E};
constexpr std::uint32_t kLower[] = {0, 1, 2, 0x00FF, 0x1234, 0x7FFF, 0x8000, 0x8001, 0xFFFF};

std::uint32_t rounded(std::uint32_t bits, std::uint32_t random) {
  return Bf16::from_f32_stochastic(f32_of(bits), random).bits;
}

TEST(Bf16StochasticRounding, AsTheOracle) {
  for (const std::uint32_t upper : kUpper)
    for (const std::uint32_t lower : kLower)
      for (std::uint32_t random = 0; random < kAllBits; random += 13) {
        const float x = f32_of(upper << 16 | lower);
        ASSERT_EQ(Bf16::from_f32_stochastic(x, random).to_f32(),
                  oracle::to_bf16_stochastic(x, static_cast<int>(random)))
            << x << " " << random;
      }
}

TEST(Bf16StochasticRounding, GoesUpAsOftenAsTheFractionSays) {
  for (const std::uint32_t upper : kUpper)
    for (const std::uint32_t lower : kLower) {
      std::uint32_t ups = 0;
      for (std::uint32_t random = 0; random < kAllBits; ++random) {
        const std::uint32_t step = rounded(upper << 16 | lower, random) - upper;
        ASSERT_LE(step, 1u);
        ups += step;
      }
      ASSERT_EQ(ups, lower) << upper;  // of 65536: the expectation is x, exactly
    }
}

TEST(Bf16StochasticRounding, WhatIsFiniteStaysFinite) {
  EXPECT_EQ(rounded(bits_of(std::numeric_limits<float>::max()), 0xFFFF), 0x7F7Fu);
  EXPECT_EQ(rounded(bits_of(std::numeric_limits<float>::lowest()), 0xFFFF), 0xFF7Fu);
  EXPECT_EQ(rounded(kInfinityF32, 0xFFFF), 0x7F80u);
  EXPECT_EQ(rounded(kInfinityF32 | kSignF32, 0xFFFF), 0xFF80u);
  for (const std::uint32_t nan : {0x7F800001u, 0x7FFFFFFFu, 0xFFC00000u})
    EXPECT_EQ(rounded(nan, 0xFFFF), Bf16::from_f32(f32_of(nan)).bits);
}

TEST(MomentRounding, CounterAndKeyHaveTheDocumentedOrder) {
  const MomentRounding rounding(0x0123456789ABCDEF, 7, 42);
  const auto expected = oracle::philox({7, 0xFFFFFFFF, 42, 25}, {0x89ABCDEF, 0x01234567});
  for (std::int64_t element = 100; element < 104; ++element) EXPECT_EQ(rounding.words(element), expected);
  EXPECT_NE(rounding.words(104), expected);
}

TEST(MomentRounding, EachMomentHasItsHalfOfAWord) {
  constexpr float kX = 1.00390613079071044921875f;  // just above the middle between 1 and its neighbour
  constexpr float kDown = 1.0f;
  constexpr float kUp = 1.0078125f;
  EXPECT_EQ(MomentRounding::round_first(kX, 0xFFFF0000).to_f32(), kDown);
  EXPECT_EQ(MomentRounding::round_first(kX, 0x0000FFFF).to_f32(), kUp);
  EXPECT_EQ(MomentRounding::round_second(kX, 0xFFFF0000).to_f32(), kUp);
  EXPECT_EQ(MomentRounding::round_second(kX, 0x0000FFFF).to_f32(), kDown);
}

TEST(MomentRounding, EveryFieldMakesOtherWords) {
  std::set<PhiloxWords> seen;
  for (const MomentRounding& rounding :
       {MomentRounding(1, 1, 1), MomentRounding(2, 1, 1), MomentRounding(1, 2, 1), MomentRounding(1, 1, 2)})
    for (const std::int64_t element : {std::int64_t{0}, std::int64_t{4}, std::int64_t{1} << 33})
      seen.insert(rounding.words(element));
  EXPECT_EQ(seen.size(), 12U);
}

}  // namespace
}  // namespace tetrad::testing::moment_rounding_test
