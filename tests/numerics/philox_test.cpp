// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 against its published answers and the oracle, and the meaning of each word of a RandomStream.

#include "tetrad/numerics/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>

#include "oracle/oracle.h"

namespace tetrad {
namespace {

using Key = std::array<std::uint32_t, 2>;

struct KnownAnswer {
  PhiloxWords counter;
  Key key;
  PhiloxWords words;
};

// From kat_vectors of Random123, the authors' library.
constexpr std::array<KnownAnswer, 3> kKnownAnswers = {{
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
}};

constexpr bool answers(const KnownAnswer& known) {
  return philox4x32_10(known.counter, known.key) == known.words;
}
static_assert(answers(kKnownAnswers[0]) && answers(kKnownAnswers[1]) && answers(kKnownAnswers[2]));

TEST(Philox, KnownAnswers) {
  for (const KnownAnswer& known : kKnownAnswers) {
    EXPECT_EQ(philox4x32_10(known.counter, known.key),
              known.words);  // what the compiler makes of it at run time
    EXPECT_EQ(oracle::philox(known.counter, known.key), known.words);
  }
}

TEST(Philox, EveryBitOfCounterAndKeyAsTheOracle) {
  for (std::uint32_t fill : {0u, 0xFFFFFFFFu, 0x9E3779B9u}) {
    for (std::size_t bit = 0; bit < 192; ++bit) {
      PhiloxWords counter = {fill, fill, fill, fill};
      Key key = {fill, fill};
      (bit < 128 ? counter[bit / 32] : key[bit / 32 - 4]) ^= 1u << (bit % 32);
      ASSERT_EQ(philox4x32_10(counter, key), oracle::philox(counter, key)) << fill << " bit " << bit;
    }
  }
}

TEST(Philox, ManyCountersAsTheOracle) {
  PhiloxWords counter = {1, 2, 3, 4};
  Key key = {5, 6};
  for (int i = 0; i < 200'000; ++i) {
    const PhiloxWords words = philox4x32_10(counter, key);
    ASSERT_EQ(words, oracle::philox(counter, key)) << i;
    key = {counter[0] ^ words[1], counter[2] + words[3]};
    counter = words;  // a walk over all of the space
  }
}

TEST(RandomStream, CounterAndKeyHaveTheDocumentedOrder) {
  constexpr RandomStream kStream = {
      .seed = 0x0123456789ABCDEFull, .step = 11, .microbatch = 22, .tensor = 33};
  constexpr Key kKey = {0x89ABCDEF, 0x01234567};  // low word first
  static_assert(kStream.group(44) == philox4x32_10({11, 22, 33, 44}, kKey));
  EXPECT_EQ(kStream.group(44), oracle::philox({11, 22, 33, 44}, kKey));
  EXPECT_EQ(kStream.group(0xFFFFFFFFu), oracle::philox({11, 22, 33, 0xFFFFFFFFu}, kKey));
}

TEST(RandomStream, BytesAreLeastSignificantFirst) {
  constexpr PhiloxWords kWords = {0x03020100, 0x07060504, 0x0B0A0908, 0x8F0E0D0C};
  for (int j = 0; j < 15; ++j) EXPECT_EQ(RandomStream::byte(kWords, j), static_cast<std::uint32_t>(j));
  EXPECT_EQ(RandomStream::byte(kWords, 15), 0x8Fu);  // and nothing of the sign
}

TEST(RandomStream, BytesOfATensorAsTheOracle) {
  const RandomStream stream = {.seed = 0xFEDCBA9876543210ull, .step = 7, .microbatch = 3, .tensor = 1000};
  const oracle::Random random = {.seed = stream.seed, .step = 7, .microbatch = 3, .tensor = 1000};
  constexpr long kCols = 48;
  for (long row = 0; row < 64; ++row) {
    for (long col = 0; col < kCols; ++col) {
      const long element = row * kCols + col;
      const PhiloxWords words = stream.group(static_cast<std::uint32_t>(element / RandomStream::kGroup));
      const auto byte = RandomStream::byte(words, static_cast<int>(element % RandomStream::kGroup));
      ASSERT_EQ(byte, static_cast<std::uint32_t>(oracle::random_byte(random, row, col, kCols)));
    }
  }
}

// Small numbers in every place, as a run has them: a mixed-up or ignored field would give two of them the
// same bits.
TEST(RandomStream, EveryFieldMakesAnotherStream) {
  std::set<std::uint32_t> words_seen;
  std::set<PhiloxWords> seen;
  constexpr std::uint32_t kEach = 5;
  for (std::uint32_t i = 0; i < kEach * kEach * kEach * kEach * kEach * 2; ++i) {
    std::uint32_t rest = i;
    const auto digit = [&rest](std::uint32_t base) {
      const std::uint32_t value = rest % base;
      rest /= base;
      return value;
    };
    const std::uint64_t seed = std::uint64_t{digit(kEach)} << (32 * digit(2));
    if (seed == 0 && i / kEach % 2 == 1) continue;  // zero in either half is one seed
    const RandomStream stream = {
        .seed = seed, .step = digit(kEach), .microbatch = digit(kEach), .tensor = digit(kEach)};
    const PhiloxWords words = stream.group(digit(kEach));
    EXPECT_TRUE(seen.insert(words).second) << i;
    words_seen.insert(words.begin(), words.end());
  }
  EXPECT_EQ(seen.size(), (2 * kEach - 1) * kEach * kEach * kEach * kEach);
  // 22,500 words: in 2^32 one expects 22500^2 / 2^33 = 0.06 pairs that coincide.
  EXPECT_GE(words_seen.size() + 1, 4 * seen.size());
}

/// Chi-square of counts against a uniform distribution.
double chi_square(const std::array<int, 256>& counts) {
  double total = 0;
  for (const int count : counts) total += count;
  const double expected = total / 256;
  double sum = 0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

// Deterministic: the seed is fixed. 255 degrees of freedom have mean 255 and standard deviation 22.6; the
// limits are four deviations away, on both sides, because bytes that are too even are not random either.
void expect_uniform(const std::array<int, 256>& counts, const char* what, int which) {
  EXPECT_GT(chi_square(counts), 255 - 4 * 22.6) << what << which;
  EXPECT_LT(chi_square(counts), 255 + 4 * 22.6) << what << which;
}

TEST(RandomStream, BytesAreUniformAtEveryPosition) {
  std::array<std::array<int, 256>, RandomStream::kGroup> counts = {};
  std::array<std::array<int, 256>, RandomStream::kGroup> steps =
      {};  // difference to the same byte a step later
  std::array<std::array<int, 256>, RandomStream::kGroup> neighbours =
      {};  // and to the next byte of the group
  const RandomStream stream = {.seed = 20240229, .step = 1, .microbatch = 0, .tensor = 5};
  const RandomStream next = {.seed = 20240229, .step = 2, .microbatch = 0, .tensor = 5};
  for (std::uint32_t group = 0; group < 1u << 16; ++group) {
    const PhiloxWords now = stream.group(group);
    const PhiloxWords later = next.group(group);
    for (int j = 0; j < RandomStream::kGroup; ++j) {
      const auto at = static_cast<std::size_t>(j);
      const std::uint32_t byte = RandomStream::byte(now, j);
      ++counts[at][byte];
      ++steps[at][(byte - RandomStream::byte(later, j)) & 0xFFu];
      ++neighbours[at][(byte - RandomStream::byte(now, (j + 1) % RandomStream::kGroup)) & 0xFFu];
    }
  }
  for (int j = 0; j < RandomStream::kGroup; ++j) {
    const auto at = static_cast<std::size_t>(j);
    expect_uniform(counts[at], "byte ", j);
    expect_uniform(steps[at], "difference between steps, byte ", j);
    expect_uniform(neighbours[at], "difference to the next, byte ", j);
  }
}

}  // namespace
}  // namespace tetrad
