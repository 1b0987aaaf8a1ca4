// SPDX-License-Identifier: Apache-2.0
// The CPU backend's elementary functions against double precision, over the range of f32.

#include "tetrad/backend/cpu/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tetrad::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The distance between f32 neighbours near x.
double ulp(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent - 24, -149));
}

/// The largest error of `fast` in ulp, over a sample of all f32 in [low, high]. Errors below `floor` do not
/// count.
template <typename Fast, typename Exact>
double worst_error(float low, float high, const Fast& fast, const Exact& exact, double floor = 0) {
  constexpr std::uint32_t kStep = 997;  // prime: all mantissas and exponents
  double worst = 0;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += kStep) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    const double expected = exact(double{x});
    const double error = std::abs(static_cast<double>(fast(x)) - expected);
    if (error > floor) worst = std::max(worst, error / ulp(expected));
  }
  return worst;
}

TEST(Math, ExpIsWithinTwoUlp) {
  EXPECT_LE(worst_error(
                -110, 88.72f, [](float x) { return fast_exp(x); }, [](double x) { return std::exp(x); }),
            2);
  EXPECT_EQ(fast_exp(0), 1);
  EXPECT_EQ(fast_exp(-105), 0);
  EXPECT_EQ(fast_exp(-kInfinity), 0);
  EXPECT_EQ(fast_exp(89), kInfinity);
  EXPECT_EQ(fast_exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(fast_exp(kNan)));
}

TEST(Math, Log1pIsWithinTwoUlp) {
  EXPECT_LE(worst_error(
                0, 1, [](float x) { return log1p_unit(x); }, [](double x) { return std::log1p(x); }),
            2);
}

TEST(Math, SigmoidSiluAndSoftplusAreWithinFourUlp) {
  constexpr double kSubnormal = 0x1p-142;
  const auto exact_sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LE(worst_error(
                -300, 300, [](float x) { return sigmoid(x); }, exact_sigmoid, kSubnormal),
            4);
  EXPECT_LE(worst_error(
                -300, 300, [](float x) { return silu(x); }, [&](double x) { return x * exact_sigmoid(x); },
                kSubnormal),
            4);
  EXPECT_LE(worst_error(
                -300, 300, [](float x) { return softplus(x); },
                [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }, kSubnormal),
            4);
  for (const float value : {sigmoid(kNan), silu(kNan), silu_gradient(kNan), softplus(kNan)})
    EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(softplus(kInfinity), kInfinity);
  EXPECT_EQ(softplus(-kInfinity), 0);
}

TEST(Math, SiluGradientIsTheDerivativeOfSilu) {
  // It crosses zero at -1.28 and has no relative accuracy there; its own size is about 1.
  double worst = 0;
  for (float x = -120; x < 120; x += 0.01f) {
    const double s = 1 / (1 + std::exp(-double{x}));
    worst = std::max(worst, std::abs(double{silu_gradient(x)} - s * (1 + x * (1 - s))));
  }
  EXPECT_LE(worst, 4 * 0x1p-23);
}

}  // namespace
}  // namespace tetrad::cpu
