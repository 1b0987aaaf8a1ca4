// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding is a pure function of a value and a byte, so its expectation is a sum over 256 bytes
// and not a matter of statistics: everything here is exact.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/float_bits.h"
#include "oracle/oracle.h"
#include "tetrad/numerics/e2m1.h"
#include "tetrad/numerics/e4m3.h"

namespace tetrad {
namespace {

using testing::f32_of;
using testing::kInfinityF32;
using testing::kSignF32;

constexpr std::uint32_t kBytes = 256;

struct StochasticE2m1 {
  using Format = E2m1;
  static constexpr std::uint32_t kNegativeZero = 0x0;  // the code of an exact -0.0
  static int encode(double x, int byte, bool centred) {
    return oracle::encode_stochastic_e2m1(x, byte, centred);
  }
  static double decode(int code) { return oracle::decode_e2m1(code); }
};

struct StochasticE4m3 {
  using Format = E4m3;
  static constexpr std::uint32_t kNegativeZero = 0x80;
  static int encode(double x, int byte, bool centred) {
    return oracle::encode_stochastic_e4m3(x, byte, centred);
  }
  static double decode(int code) { return oracle::decode_e4m3(code); }
};

constexpr std::array<StochasticBias, 2> kBiases = {StochasticBias::hardware, StochasticBias::centred};

bool is_centred(StochasticBias bias) { return bias == StochasticBias::centred; }

/// Every BF16 that is not NaN, infinities included.
template <typename Check>
void for_every_bf16(Check check) {
  for (const std::uint32_t sign : {0u, kSignF32})
    for (std::uint32_t magnitude = 0; magnitude <= kInfinityF32; magnitude += 1u << 16)
      ASSERT_NO_FATAL_FAILURE(check(f32_of(magnitude | sign)));
}

template <typename Case>
void assert_as_oracle(float x, std::uint32_t byte, StochasticBias bias) {
  const int expected = Case::encode(static_cast<double>(x), static_cast<int>(byte), is_centred(bias));
  const std::uint32_t code = Case::Format::encode_stochastic(x, byte, bias);
  if (code != static_cast<std::uint32_t>(expected))  // compared before gtest is involved: its macros are slow
    FAIL() << "x " << x << " byte " << byte << " centred " << is_centred(bias) << ": code " << code
           << ", the oracle has " << expected;
}

/// |x| among the magnitudes of a format.
struct Place {
  std::uint32_t below = 0;  //!< the largest code whose value is at most |x|
  double fraction = 0;      //!< how far towards the next code; 0 from the largest magnitude on
  double step = 0;
};

/// The magnitudes of a format in order, and where values are among them: all in doubles, from the oracle's
/// decoder.
template <typename Case>
class Magnitudes {
 public:
  Magnitudes() {
    for (std::uint32_t code = 0; code <= Case::Format::kMaxCode; ++code)
      values_.push_back(Case::decode(static_cast<int>(code)));
  }

  Place place(float x) const {
    const double a = std::fabs(static_cast<double>(x));
    if (a >= values_.back()) return {Case::Format::kMaxCode, 0, 0};
    const auto above = std::upper_bound(values_.begin(), values_.end(), a);
    const double lo = *(above - 1);
    const double step = *above - lo;  // a power of two, so the quotient is exact
    return {static_cast<std::uint32_t>(above - 1 - values_.begin()), (a - lo) / step, step};
  }

  /// The point of the interval above code `below`, as an f32 that holds it exactly.
  float between(std::uint32_t below, double fraction) const {
    const double exact = values_[below] + fraction * (values_[below + 1] - values_[below]);
    EXPECT_EQ(static_cast<double>(static_cast<float>(exact)), exact);
    return static_cast<float>(exact);
  }

 private:
  std::vector<double> values_;
};

template <typename Format>
int round_ups(float x, std::uint32_t below, StochasticBias bias) {
  int ups = 0;
  for (std::uint32_t byte = 0; byte < kBytes; ++byte)
    ups += (Format::encode_stochastic(x, byte, bias) & Format::kMagnitudeMask) == below + 1 ? 1 : 0;
  return ups;
}

/// The mean error, in steps, over all bytes and the fractions (2k + offset)/1024, k < 512, of every interval
/// of the format. All terms are multiples of 2^-10, so the sum is exact.
template <typename Case>
double mean_bias(int offset, StochasticBias bias) {
  const Magnitudes<Case> magnitudes;
  constexpr std::uint32_t kIntervals = Case::Format::kMaxCode;
  double sum = 0;
  for (std::uint32_t below = 0; below < kIntervals; ++below) {
    for (int k = 0; k < 512; ++k) {
      const double fraction = (2 * k + offset) / 1024.0;
      const float x = magnitudes.between(below, fraction);
      sum += round_ups<typename Case::Format>(x, below, bias) / 256.0 - fraction;
    }
  }
  return sum / (512.0 * kIntervals);
}

template <typename Case>
class StochasticRounding : public ::testing::Test {};
using StochasticCases = ::testing::Types<StochasticE2m1, StochasticE4m3>;
TYPED_TEST_SUITE(StochasticRounding, StochasticCases);

TYPED_TEST(StochasticRounding, EveryBf16AndByteAsTheOracle) {
  for_every_bf16([](float x) {
    for (const StochasticBias bias : kBiases)
      for (std::uint32_t byte = 0; byte < kBytes; ++byte) assert_as_oracle<TypeParam>(x, byte, bias);
  });
}

TYPED_TEST(StochasticRounding, EveryBf16StaysBetweenItsNeighbours) {
  using Format = typename TypeParam::Format;
  const Magnitudes<TypeParam> magnitudes;
  for_every_bf16([&magnitudes](float x) {
    const Place at = magnitudes.place(x);
    const bool negative_zero = x == 0 && std::signbit(x);
    const std::uint32_t sign =
        negative_zero ? TypeParam::kNegativeZero : (std::signbit(x) ? Format::kSignBit : 0u);
    for (const StochasticBias bias : kBiases) {
      std::uint32_t previous = at.below;
      for (std::uint32_t byte = 0; byte < kBytes; ++byte) {
        const std::uint32_t code = Format::encode_stochastic(x, byte, bias);
        const std::uint32_t magnitude = code & Format::kMagnitudeMask;
        const bool is_neighbour = magnitude == at.below || (magnitude == at.below + 1 && at.fraction > 0);
        const bool is_monotone = magnitude >= previous;
        const bool keeps_sign = (code & ~Format::kMagnitudeMask) == sign;
        if (!is_neighbour || !is_monotone || !keeps_sign || magnitude > Format::kMaxCode)
          FAIL() << "x " << x << " byte " << byte << " code " << code << " after " << previous;
        previous = magnitude;
      }
    }
  });
}

TYPED_TEST(StochasticRounding, EveryBf16HasTheExactExpectation) {
  const Magnitudes<TypeParam> magnitudes;
  for_every_bf16([&magnitudes](float x) {
    const Place at = magnitudes.place(x);
    const double share = 256 * at.fraction;
    const int centred = round_ups<typename TypeParam::Format>(x, at.below, StochasticBias::centred);
    const int hardware = round_ups<typename TypeParam::Format>(x, at.below, StochasticBias::hardware);
    ASSERT_EQ(centred, std::floor(share + 0.5)) << x;
    ASSERT_EQ(hardware, std::floor(share)) << x;
    // The same as errors of the mean over bytes, in units of the value.
    const double step = at.step;
    ASSERT_LE(std::fabs(centred / 256.0 * step - at.fraction * step), step / 512) << x;
    ASSERT_LE(hardware / 256.0 * step, at.fraction * step) << x;
    ASSERT_TRUE(step == 0 || at.fraction * step - hardware / 256.0 * step < step / 256) << x;
  });
}

// Fractions (2k + 1)/1024 are the midpoints of 512 equal cells of a step, that is the mean over a uniform
// fraction: exactly 0, and -1/512. On the cells' corners k/512 every second fraction is a threshold itself,
// where "round up at frac + u >= 1" rounds up: half of them gain (centred) or lose (hardware) 1/512.
TYPED_TEST(StochasticRounding, MeanBiasOverUniformFractions) {
  EXPECT_EQ(mean_bias<TypeParam>(1, StochasticBias::centred), 0.0);
  EXPECT_EQ(mean_bias<TypeParam>(1, StochasticBias::hardware), -1.0 / 512);
  EXPECT_EQ(mean_bias<TypeParam>(0, StochasticBias::centred), 1.0 / 1024);
  EXPECT_EQ(mean_bias<TypeParam>(0, StochasticBias::hardware), -1.0 / 1024);
}

// BF16 leaves few fraction bits. Here inputs have all 24 of f32, in the neighbourhood of every threshold of
// every interval: fraction 1 - u, with u = (r + 1/2)/256 or r/256.
TYPED_TEST(StochasticRounding, NeighboursOfEveryThresholdAsTheOracle) {
  const Magnitudes<TypeParam> magnitudes;
  for (std::uint32_t below = 0; below < TypeParam::Format::kMaxCode; ++below) {
    for (std::uint32_t threshold = 1; threshold <= 512; ++threshold) {
      const float centre = magnitudes.between(below, threshold / 512.0);
      const std::uint32_t byte = (512 - threshold) / 2;  // the one whose threshold this is, for either bias
      for (std::uint32_t ulps = 0; ulps < 5; ++ulps) {
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(centre) + ulps - 2;
        for (const StochasticBias bias : kBiases)
          for (std::uint32_t r = byte > 0 ? byte - 1 : 0; r <= std::min(byte + 1, kBytes - 1); ++r) {
            ASSERT_NO_FATAL_FAILURE(assert_as_oracle<TypeParam>(f32_of(bits), r, bias));
            ASSERT_NO_FATAL_FAILURE(assert_as_oracle<TypeParam>(f32_of(bits | kSignF32), r, bias));
          }
      }
    }
  }
}

TYPED_TEST(StochasticRounding, ValuesNeverMove) {
  using Format = typename TypeParam::Format;
  for (std::uint32_t magnitude = 0; magnitude <= Format::kMaxCode; ++magnitude) {
    for (const std::uint32_t code : {magnitude, magnitude | Format::kSignBit}) {
      const std::uint32_t expected = code == Format::kSignBit ? TypeParam::kNegativeZero : code;
      for (const StochasticBias bias : kBiases)
        for (std::uint32_t byte = 0; byte < kBytes; ++byte)
          ASSERT_EQ(Format::encode_stochastic(Format::decode(code), byte, bias), expected);
    }
  }
}

TYPED_TEST(StochasticRounding, NanSaturates) {
  using Format = typename TypeParam::Format;
  for (std::uint32_t upper = 0x7F81u; upper < 0x8000u; ++upper)
    for (const std::uint32_t sign : {0u, kSignF32})
      for (std::uint32_t byte = 0; byte < kBytes; ++byte) {
        const std::uint32_t code = Format::encode_stochastic(f32_of(upper << 16 | sign), byte);
        ASSERT_EQ(code & Format::kMagnitudeMask, Format::kMaxCode);
      }
}

TEST(StochasticRoundingDefinition, ByHand) {
  // 2.25 is a quarter of the way from 2 to 3: up when 1/4 + (r + 1/2)/256 >= 1, that is for r >= 191.5.
  static_assert(E2m1::encode_stochastic(2.25f, 191) == 4 && E2m1::encode_stochastic(2.25f, 192) == 5);
  // 10.5/256 of a step from 4 to 6: the threshold of byte 245 itself. The hardware's is at byte 246.
  constexpr float kX = 4.0f + 2.0f * 10.5f / 256.0f;
  static_assert(E2m1::encode_stochastic(kX, 244) == 6 && E2m1::encode_stochastic(kX, 245) == 7);
  static_assert(E2m1::encode_stochastic(kX, 245, StochasticBias::hardware) == 6);
  static_assert(E2m1::encode_stochastic(kX, 246, StochasticBias::hardware) == 7);
  static_assert(E2m1::encode_stochastic(-0x1p-140f, 255) == 8 && E2m1::encode_stochastic(-0.0f, 255) == 0);
}

}  // namespace
}  // namespace tetrad
