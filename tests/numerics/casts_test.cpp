// SPDX-License-Identifier: Apache-2.0
// Nearest casts and decoders of the element formats, against the oracle: every BF16, every f32, every code.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "numerics/float_bits.h"
#include "oracle/oracle.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/numerics/e2m1.h"
#include "tetrad/numerics/e4m3.h"
#include "tetrad/numerics/e8m0.h"
#include "tetrad/numerics/f16.h"

namespace tetrad {
namespace {

using testing::bits_of;
using testing::f32_of;
using testing::kInfinityF32;
using testing::kSignF32;

// Every f32 is cast, except under sanitizers, whose instrumentation keeps the sweeps from being vectorised.
// There they take a prime stride, which visits all bit positions alike; neighbourhoods of boundaries stay
// complete in any build.
#ifdef __SANITIZE_ADDRESS__
constexpr std::uint32_t kStride = 7;
#else
constexpr std::uint32_t kStride = 1;
#endif

constexpr std::uint32_t kBf16Values = 1u << 16;

constexpr bool is_nan(std::uint32_t bits) { return (bits & ~kSignF32) > kInfinityF32; }

struct E2m1Case {
  using Format = E2m1;
  static constexpr oracle::Element kElement = oracle::Element::e2m1;
  static constexpr std::uint32_t kNegativeZero = 0x0;  // the code of an exact -0.0
  static constexpr std::uint32_t kNegativeNan = 0x7;   // "casts would silently turn NaN into +6"
  static int encode(double x) { return oracle::encode_e2m1(x); }
  static double decode(std::uint32_t code) { return oracle::decode_e2m1(static_cast<int>(code)); }
};

struct E4m3Case {
  using Format = E4m3;
  static constexpr oracle::Element kElement = oracle::Element::e4m3;
  static constexpr std::uint32_t kNegativeZero = 0x80;
  static constexpr std::uint32_t kNegativeNan = 0xFE;
  static int encode(double x) { return oracle::encode_e4m3(x); }
  static double decode(std::uint32_t code) { return oracle::decode_e4m3(static_cast<int>(code)); }
};

template <typename Case>
class Casts : public ::testing::Test {};
using Cases = ::testing::Types<E2m1Case, E4m3Case>;
TYPED_TEST_SUITE(Casts, Cases);

template <typename Case>
void expect_as_oracle(std::uint32_t bits) {
  const float x = f32_of(bits);
  const auto expected = static_cast<std::uint32_t>(Case::encode(static_cast<double>(x)));
  // Compared before gtest is involved: its macros cost more than the casts.
  if (Case::Format::encode(x) != expected) {
    ADD_FAILURE() << "encode(" << x << ", bits " << std::hex << bits << ") is " << Case::Format::encode(x)
                  << ", the oracle has " << expected;
  }
  if (x == x && Case::Format::rounded_magnitude(x) != magnitude_of(Case::Format::decode(expected)))
    ADD_FAILURE() << "rounded_magnitude(" << x << ", bits " << std::hex << bits << ")";
}

/// The bits of the smallest magnitude of each code: where the code changes, ties included.
template <typename Case>
std::vector<std::uint32_t> first_magnitudes() {
  std::vector<std::uint32_t> first = {0};
  for (const oracle::Boundary& boundary : oracle::boundaries(Case::kElement)) {
    const auto midpoint = static_cast<float>(boundary.midpoint);
    EXPECT_EQ(static_cast<double>(midpoint), boundary.midpoint) << "a boundary must be an f32 itself";
    first.push_back(bits_of(midpoint) + (boundary.tie_goes_up ? 0u : 1u));
  }
  return first;
}

/// All bits in which any code of the inputs [begin, end) differs from `code`: zero if every single one is
/// right. Written as one reduction without branches so that it is vectorised and all of f32 takes about a
/// second.
template <typename Format>
std::uint32_t deviation(std::uint32_t begin, std::uint32_t end, std::uint32_t code) {
  std::uint32_t deviation = 0;
  const std::uint32_t count = (end - begin + kStride - 1) / kStride;
  for (std::uint32_t i = 0; i < count; ++i) deviation |= Format::encode(f32_of(begin + i * kStride)) ^ code;
  return deviation;
}

template <typename Format>
void expect_code_on(std::uint32_t begin, std::uint32_t end, std::uint32_t code) {
  if (deviation<Format>(begin, end, code) == 0) return;
  std::uint32_t bits = begin;
  while (Format::encode(f32_of(bits)) == code) bits += kStride;
  ADD_FAILURE() << "encode(" << f32_of(bits) << ", bits " << std::hex << bits << ") is "
                << Format::encode(f32_of(bits)) << ", expected " << code;
}

TYPED_TEST(Casts, EveryBf16AsTheOracle) {
  for (std::uint32_t upper = 0; upper < kBf16Values; ++upper)
    if (!is_nan(upper << 16)) expect_as_oracle<TypeParam>(upper << 16);
}

TYPED_TEST(Casts, NeighboursOfBoundariesAndValuesAsTheOracle) {
  using Format = typename TypeParam::Format;
  std::vector<double> centres;
  for (const oracle::Boundary& boundary : oracle::boundaries(TypeParam::kElement))
    centres.push_back(boundary.midpoint);
  for (std::uint32_t code = 0; code <= Format::kMaxCode; ++code) centres.push_back(TypeParam::decode(code));
  ASSERT_EQ(centres.size(), 2 * Format::kMaxCode + 1);
  for (const double centre : centres) {
    for (std::int64_t ulps = -3; ulps <= 3; ++ulps) {
      const std::int64_t bits = std::int64_t{bits_of(static_cast<float>(centre))} + ulps;
      if (bits < 0) continue;  // below +0.0
      expect_as_oracle<TypeParam>(static_cast<std::uint32_t>(bits));
      expect_as_oracle<TypeParam>(static_cast<std::uint32_t>(bits) | kSignF32);
    }
  }
}

// A complete proof: the oracle's boundaries cut the magnitudes into one range of bits per code, and every
// value of every range, of either sign, is cast and compared.
TYPED_TEST(Casts, EveryF32) {
  using Format = typename TypeParam::Format;
  std::vector<std::uint32_t> first = first_magnitudes<TypeParam>();
  ASSERT_EQ(first.size(), Format::kMaxCode + 1);
  first.push_back(kInfinityF32 + 1);  // the largest code goes on to infinity
  for (std::uint32_t code = 0; code <= Format::kMaxCode; ++code) {
    const std::uint32_t begin = first[code];
    const std::uint32_t end = first[code + 1];
    ASSERT_LT(begin, end);
    expect_code_on<Format>(begin, end, code);
    // -0.0 has a rule of its own; everything else below zero keeps its sign.
    expect_code_on<Format>((code == 0 ? 1 : begin) | kSignF32, end | kSignF32, code | Format::kSignBit);
  }
  EXPECT_EQ(Format::encode(-0.0f), TypeParam::kNegativeZero);
  expect_code_on<Format>(kInfinityF32 + 1, kSignF32, Format::kMaxCode);
  expect_code_on<Format>((kInfinityF32 + 1) | kSignF32, 0xFFFFFFFFu, TypeParam::kNegativeNan);
  EXPECT_EQ(Format::encode(f32_of(0xFFFFFFFFu)), TypeParam::kNegativeNan);
}

TYPED_TEST(Casts, DecodesEveryCode) {
  using Format = typename TypeParam::Format;
  for (std::uint32_t code = 0; code < 2 * Format::kSignBit; ++code) {
    const double expected = TypeParam::decode(code);
    const float value = Format::decode(code);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(bits_of(value), bits_of(static_cast<float>(expected))) << code;
    }
  }
}

TYPED_TEST(Casts, RoundTripsEveryValue) {
  using Format = typename TypeParam::Format;
  for (std::uint32_t magnitude = 0; magnitude <= Format::kMaxCode; ++magnitude) {
    for (const std::uint32_t code : {magnitude, magnitude | Format::kSignBit}) {
      const float value = Format::decode(code);
      const bool negative_zero = code == Format::kSignBit;
      EXPECT_EQ(Format::encode(value), negative_zero ? TypeParam::kNegativeZero : code);
      EXPECT_EQ(Format::decode(Format::encode(value)), value);
    }
  }
}

TEST(E2m1Casts, TiesAndSignOfZeroByHand) {
  constexpr std::array<float, 8> kValues = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  for (std::uint32_t code = 0; code < 8; ++code) EXPECT_EQ(E2m1::decode(code), kValues[code]);
  constexpr std::array<std::array<float, 2>, 7> kTies = {
      {{.25f, 0}, {.75f, 1}, {1.25f, 1}, {1.75f, 2}, {2.5f, 2}, {3.5f, 4}, {5, 4}}};
  for (const auto& [tie, rounded] : kTies) {
    EXPECT_EQ(E2m1::decode(E2m1::encode(tie)), rounded);
    EXPECT_EQ(E2m1::decode(E2m1::encode(-tie)), -rounded);
  }
  static_assert(E2m1::encode(-0.25f) == 8 && E2m1::encode(-0x1p-149f) == 8 && E2m1::encode(-0.0f) == 0);
}

TEST(E2m1Casts, PacksTheEvenElementLow) {
  static_assert(pack_e2m1(0x1, 0xF) == 0xF1);
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(pack_e2m1(unpack_e2m1_even(byte), unpack_e2m1_odd(byte)), byte);
    EXPECT_EQ(unpack_e2m1_even(byte), byte % 16);
    EXPECT_EQ(unpack_e2m1_odd(byte), byte / 16);
  }
}

TEST(Fp8Casts, SpecialCodes) {
  EXPECT_TRUE(std::isnan(E4m3::decode(0x7F)));
  EXPECT_TRUE(std::isnan(E4m3::decode(0xFF)));
  static_assert(E4m3::encode(465.0f) == 0x7E, "without saturation this would be NaN");
}

/// For one upper half: the union of bits in which the BF16 of the inputs with lower halves [begin, end]
/// differ from `expected`.
std::uint32_t bf16_deviation(std::uint32_t upper, std::uint32_t begin, std::uint32_t end,
                             std::uint32_t expected) {
  std::uint32_t deviation = 0;
  for (std::uint32_t low = begin; low <= end; low += kStride)
    deviation |= Bf16::from_f32(f32_of(upper << 16 | low)).bits ^ expected;
  return deviation;
}

// All of f32 again. The oracle fixes both ends of each half of an interval between BF16 neighbours, and the
// tie; rounding being monotone, what lies between two ends with one result has that result.
TEST(Bf16Casts, EveryF32RoundsAsTheOracle) {
  for (std::uint32_t upper = 0; upper < kBf16Values; ++upper) {
    if ((upper & 0x7F80u) == 0x7F80u) continue;  // infinities and NaNs: below
    const auto expected = [upper](std::uint32_t low) {
      return bits_of(oracle::to_bf16(f32_of(upper << 16 | low))) >> 16;
    };
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      ASSERT_EQ(Bf16::from_f32(f32_of(upper << 16 | low)).bits, expected(low)) << upper << " " << low;
    ASSERT_EQ(expected(0x0000), expected(0x7FFF));
    ASSERT_EQ(expected(0x8001), expected(0xFFFF));
    ASSERT_EQ(bf16_deviation(upper, 0x0000, 0x7FFF, expected(0x0000)), 0u) << upper;
    ASSERT_EQ(bf16_deviation(upper, 0x8001, 0xFFFF, expected(0xFFFF)), 0u) << upper;
  }
}

TEST(Bf16Casts, NansStayNanAndBecomeQuiet) {
  constexpr std::uint32_t kQuiet = 0x7FC0;
  for (const std::uint32_t sign : {0u, kSignF32}) {
    EXPECT_EQ(Bf16::from_f32(f32_of(kInfinityF32 | sign)).bits, (kInfinityF32 | sign) >> 16);
    std::uint32_t common = 0xFFFF;  // set in every result: exponent, quiet bit, sign
    std::uint32_t any = 0;
    for (std::uint32_t mantissa = 1; mantissa < 0x800000u; mantissa += kStride) {
      const std::uint32_t bits = Bf16::from_f32(f32_of(kInfinityF32 | sign | mantissa)).bits;
      common &= bits;
      any |= bits;
    }
    EXPECT_EQ(common & kQuiet, kQuiet);
    EXPECT_EQ(common & 0x8000u, sign >> 16);
    EXPECT_EQ(any & 0x8000u, sign >> 16);
  }
}

TEST(Bf16Casts, RoundTripsEveryValue) {
  for (std::uint32_t upper = 0; upper < kBf16Values; ++upper) {
    const Bf16 value = {static_cast<std::uint16_t>(upper)};
    // Not through to_f32() of a signalling NaN: an f32 register may have made it quiet already.
    const std::uint32_t expected = is_nan(upper << 16) ? upper | 0x40u : upper;
    ASSERT_EQ(Bf16::from_f32(value.to_f32()).bits, expected);
    ASSERT_EQ(bits_of(value.to_f32()) >> 16 | 0x40u, upper | 0x40u);
  }
}

TEST(F16Casts, DecodesEveryCode) {
  for (std::uint32_t code = 0; code < kBf16Values; ++code) {
    const auto exponent = static_cast<int>(code >> 10 & 0x1Fu);
    const auto mantissa = static_cast<double>(code & 0x3FFu);
    const double sign = code >= 0x8000u ? -1 : 1;
    const float value = F16::decode(code);
    if (exponent == 31 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(value)) << code;
      continue;
    }
    double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) magnitude = std::numeric_limits<double>::infinity();
    ASSERT_EQ(bits_of(value), bits_of(static_cast<float>(sign * magnitude))) << code;
  }
}

TEST(E8m0Casts, DecodesEveryByte) {
  for (int byte = 0; byte < 255; ++byte)
    EXPECT_EQ(E8m0::decode(static_cast<std::uint32_t>(byte)), std::ldexp(1.0f, byte - 127)) << byte;
  EXPECT_TRUE(std::isnan(E8m0::decode(255)));
}

TEST(E8m0Casts, FloorOfLog2OfEveryBf16) {
  EXPECT_EQ(E8m0::floor_log2_byte(0.0f), 0u);
  for (std::uint32_t upper = 1; upper < 0x7F80u; ++upper) {
    const float x = f32_of(upper << 16);
    const int expected = std::max(std::ilogb(x) + 127, 0);
    ASSERT_EQ(E8m0::floor_log2_byte(x), static_cast<std::uint32_t>(expected)) << x;
  }
}

}  // namespace
}  // namespace tetrad
