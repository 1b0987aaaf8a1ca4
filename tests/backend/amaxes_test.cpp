// SPDX-License-Identifier: Apache-2.0
// The largest magnitudes of many tensors, as bits.

#include "tetrad/ops/amax.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "support/matrices.h"

namespace tetrad::testing::amaxes_test {
namespace {

class AmaxesOn : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<std::uint32_t> amaxes(const std::vector<std::vector<float>>& values) {
    std::vector<Amaxes::Tensor> tensors;
    for (const std::vector<float>& each : values) tensors.push_back({each.data(), std::ssize(each)});
    std::vector<std::uint32_t> bits(values.size(), 0xEEEEEEEE);
    backend(GetParam()).amaxes({tensors, bits.data()});
    return bits;
  }
};
INSTANTIATE_TEST_SUITE_P(All, AmaxesOn, ::testing::ValuesIn(backend_names()), BackendTestName());

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST_P(AmaxesOn, AreThoseOfEachTensor) {
  std::vector<std::vector<float>> values;
  std::vector<std::uint32_t> expected;
  for (const std::int64_t size : {1, 3, 1000, 70'001, 300'000}) {
    values.push_back(to_f32(random_values(size, static_cast<std::uint32_t>(size))));
    float largest = 0;
    for (const float value : values.back()) largest = std::max(largest, std::abs(value));
    expected.push_back(bits_of(largest));
  }
  EXPECT_EQ(amaxes(values), expected);
}

TEST_P(AmaxesOn, OfNothingAndOfZerosAreZero) {
  EXPECT_EQ(amaxes({{}, {0.0f, -0.0f}, {-1e-45f}}), (std::vector<std::uint32_t>{0, 0, 1}));
  EXPECT_TRUE(amaxes({}).empty());
}

TEST_P(AmaxesOn, WhatIsNotFiniteIsAboveAll) {
  std::vector<float> large(5000, -std::numeric_limits<float>::max());
  EXPECT_EQ(amaxes({large}), std::vector{bits_of(std::numeric_limits<float>::max())});
  large[4321] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(amaxes({large}), std::vector{bits_of(std::numeric_limits<float>::infinity())});
  large[17] = -std::numeric_limits<float>::quiet_NaN();
  EXPECT_GT(amaxes({large})[0], bits_of(std::numeric_limits<float>::infinity()));
}

}  // namespace
}  // namespace tetrad::testing::amaxes_test
