// SPDX-License-Identifier: Apache-2.0
// The random Hadamard transform: to the bit against the oracle, and as the orthogonal matrix it is meant to
// be.

#include "tetrad/numerics/hadamard.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "oracle/oracle.h"
#include "tetrad/numerics/bf16.h"

namespace tetrad {
namespace {

template <int kSizeOfRun>
struct SizeCase {
  static constexpr int kSize = kSizeOfRun;
};

template <typename Case>
class Hadamard : public ::testing::Test {};
using Sizes = ::testing::Types<SizeCase<2>, SizeCase<4>, SizeCase<8>, SizeCase<16>, SizeCase<32>,
                               SizeCase<64>, SizeCase<128>>;
TYPED_TEST_SUITE(Hadamard, Sizes);

using Run = std::vector<float>;

template <int kSize>
Run transformed(Run run, const SignMask& signs) {
  hadamard<kSize>(run.data(), signs);
  return run;
}

Run rounded(Run run) {
  for (float& x : run) x = round_to_bf16(x);
  return run;
}

/// BF16 values of one character; all finite, and small enough that no sum overflows.
class Inputs {
 public:
  explicit Inputs(int size) : size_(size) {}

  Run normal() {
    return fill([this] { return std::normal_distribution<float>()(random_); });
  }
  /// One value that dwarfs the others, so that their low bits are lost in the sums.
  Run outlier() {
    Run run = normal();
    run[random_() % run.size()] = round_to_bf16(std::ldexp(1.37f, static_cast<int>(random_() % 30)));
    return run;
  }
  /// Two of them that cancel: what is left depends on when they meet, that is on the order of the strides.
  Run cancelling() {
    Run run = normal();
    const std::size_t first = random_() % run.size();
    const std::size_t second = (first + 1 + random_() % (run.size() - 1)) % run.size();
    run[first] = std::ldexp(1.0f, static_cast<int>(integer(10, 26)));
    run[second] = -run[first];
    return run;
  }
  Run subnormal() {
    return fill([this] { return std::ldexp(1.0f, -133) * static_cast<float>(integer(-127, 127)); });
  }
  /// Exponents all over f32's range, and zeros of both signs.
  Run wild() {
    return fill([this] {
      const float x =
          std::ldexp(static_cast<float>(integer(-255, 255)), static_cast<int>(integer(-133, 110)));
      return integer(0, 3) == 0 ? std::copysign(0.0f, x) : x;
    });
  }

 private:
  template <typename Draw>
  Run fill(Draw draw) {
    Run run(static_cast<std::size_t>(size_));
    for (float& x : run) x = round_to_bf16(draw());
    return run;
  }
  long integer(long lo, long hi) { return std::uniform_int_distribution<long>(lo, hi)(random_); }

  int size_;
  std::mt19937_64 random_{12345};
};

template <int kSize>
void expect_as_oracle(const Run& run, const char* kind) {
  constexpr SignMask kMany{{0x3C6EF372, 0xDAA66D2B, 0x78DDE6E4, 0x1715609D}};
  for (const SignMask& signs : {kFixedSigns, kNoSigns, kMany}) {
    const Run result = rounded(transformed<kSize>(run, signs));
    const Run expected = oracle::hadamard(run, std::to_array(signs.word));
    for (std::size_t i = 0; i < run.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(result[i]), std::bit_cast<std::uint32_t>(expected[i]))
          << kind << " signs " << signs.word[0] << " element " << i << ": " << result[i] << ", "
          << expected[i];
    }
  }
}

TYPED_TEST(Hadamard, EqualsTheOracleToTheBit) {
  constexpr int kSize = TypeParam::kSize;
  Inputs inputs(kSize);
  for (int repeat = 0; repeat < 500; ++repeat) {
    ASSERT_NO_FATAL_FAILURE(expect_as_oracle<kSize>(inputs.normal(), "normal"));
    ASSERT_NO_FATAL_FAILURE(expect_as_oracle<kSize>(inputs.outlier(), "outlier"));
    ASSERT_NO_FATAL_FAILURE(expect_as_oracle<kSize>(inputs.cancelling(), "cancelling"));
    ASSERT_NO_FATAL_FAILURE(expect_as_oracle<kSize>(inputs.subnormal(), "subnormal"));
    ASSERT_NO_FATAL_FAILURE(expect_as_oracle<kSize>(inputs.wild(), "wild"));
  }
}

// In f32, before BF16 hides the last bits: each mantissa of BF16 times the scale, rounded once.
TYPED_TEST(Hadamard, IsTheMatrixOfTheDefinition) {
  constexpr int kSize = TypeParam::kSize;
  const auto scale = static_cast<double>(static_cast<float>(1 / std::sqrt(double{kSize})));
  for (const SignMask& signs : {kNoSigns, kFixedSigns}) {
    for (unsigned row = 0; row < kSize; ++row) {
      const bool flipped = signs.is_negative(static_cast<int>(row));
      for (int mantissa = 0; mantissa < 128; ++mantissa) {
        const float x = 1 + static_cast<float>(mantissa) / 128;
        Run run(kSize);
        run[row] = x;
        const Run y = transformed<kSize>(run, signs);
        const auto expected = static_cast<float>(static_cast<double>(x) * scale);
        for (unsigned column = 0; column < kSize; ++column) {
          const bool negative = (std::popcount(row & column) % 2 == 1) != flipped;
          ASSERT_EQ(y[column], negative ? -expected : expected) << x << " at " << row << "," << column;
        }
      }
    }
  }
}

double dot(const Run& a, const Run& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Why the transform may be put on both operands of a GEMM. With H exact and T the f32 transform, |Tx - Hx|
// grows by at most 2^-24 |x| for each stage of butterflies (every element of the result is rounded once, and
// a stage preserves norms up to its factor), once more for the multiplication by the scale and once for the
// scale itself: e = (log2 d + 2) 2^-24. Rounding to BF16 adds 2^-8. The dot product of two such vectors is
// off by at most (2e + e^2) |x| |y|. (Every sum in `dot` is in f64 and does not matter.)
TYPED_TEST(Hadamard, KeepsDotProducts) {
  constexpr int kSize = TypeParam::kSize;
  const double f32_error = (std::log2(double{kSize}) + 2) * 0x1p-24;
  const double bf16_error = f32_error + 0x1p-8 * (1 + f32_error);
  const auto tolerance = [](double e) { return 2 * e + e * e + 1e-9; };
  Inputs inputs(kSize);
  for (int repeat = 0; repeat < 500; ++repeat) {
    for (const SignMask& signs : {kNoSigns, kFixedSigns}) {
      const Run x = repeat % 2 == 0 ? inputs.normal() : inputs.outlier();
      const Run y = inputs.normal();
      const Run tx = transformed<kSize>(x, signs);
      const Run ty = transformed<kSize>(y, signs);
      const double norms = std::sqrt(dot(x, x) * dot(y, y));
      ASSERT_NEAR(dot(tx, ty), dot(x, y), tolerance(f32_error) * norms);
      ASSERT_NEAR(dot(rounded(tx), rounded(ty)), dot(x, y), tolerance(bf16_error) * norms);
    }
  }
}

TYPED_TEST(Hadamard, SpreadsAnOutlierEvenly) {
  constexpr int kSize = TypeParam::kSize;
  Run run(kSize);
  run[kSize / 2] = 1024;
  for (const float y : transformed<kSize>(run, kFixedSigns))
    EXPECT_EQ(std::fabs(y), 1024 * hadamard_scale(kSize));
}

TYPED_TEST(Hadamard, ScaleIsTheNearestF32) {
  constexpr int kSize = TypeParam::kSize;
  EXPECT_EQ(hadamard_scale(kSize), static_cast<float>(1 / std::sqrt(double{kSize})));
}

// Backends transform several runs at once in the lanes of a vector: the same function, the same bits.
TYPED_TEST(Hadamard, LanesOfAVectorDoNotMix) {
  constexpr int kSize = TypeParam::kSize;
  constexpr int kLanes = 8;
  using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
  Inputs inputs(kSize);
  std::array<Lanes, kSize> side_by_side = {};
  std::array<Run, kLanes> runs;
  for (int lane = 0; lane < kLanes; ++lane) {
    runs[static_cast<std::size_t>(lane)] = inputs.wild();
    for (std::size_t i = 0; i < kSize; ++i) side_by_side[i][lane] = runs[static_cast<std::size_t>(lane)][i];
  }
  hadamard<kSize>(side_by_side.data(), kFixedSigns);
  for (int lane = 0; lane < kLanes; ++lane) {
    const Run alone = transformed<kSize>(runs[static_cast<std::size_t>(lane)], kFixedSigns);
    for (std::size_t i = 0; i < kSize; ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(float{side_by_side[i][lane]}),
                std::bit_cast<std::uint32_t>(alone[i]));
  }
}

// A sum can leave f32 although every input is finite. It must show, and the amax pass then reports the
// tensor.
TYPED_TEST(Hadamard, OverflowIsNotHidden) {
  constexpr int kSize = TypeParam::kSize;
  EXPECT_FALSE(std::isfinite(transformed<kSize>(Run(kSize, 0x1.FEp127f), kNoSigns)[0]));
}

TEST(HadamardSigns, AreNvidias) {
  const std::string expected = "+++-+------+-+--";
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(kFixedSigns.is_negative(i), expected[static_cast<std::size_t>(i % 16)] == '-') << i;
    EXPECT_FALSE(kNoSigns.is_negative(i));
  }
}

TEST(HadamardSizes, ArePowersOfTwoFrom2To128) {
  for (int size = -4; size <= 300; ++size) {
    const bool expected =
        size == 2 || size == 4 || size == 8 || size == 16 || size == 32 || size == 64 || size == 128;
    EXPECT_EQ(is_hadamard_size(size), expected) << size;
  }
}

}  // namespace
}  // namespace tetrad
