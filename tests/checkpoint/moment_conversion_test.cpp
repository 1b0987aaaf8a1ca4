// SPDX-License-Identifier: Apache-2.0
// Moments in f32 that become BF16, and back.

#include "tetrad/checkpoint/moment_conversion.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/cpu.h"

namespace tetrad::testing::moment_conversion_test {
namespace {

constexpr std::uint64_t kSeed = 5;
constexpr std::uint32_t kParameter = 2;
constexpr std::int64_t kStep = 1;
constexpr std::size_t kSize = 200'003;  // more than a thread takes at a time, and no multiple of four

/// The moments that the first step leaves. What it begins with, zeros, is the same in both types.
template <typename T>
struct Moments {
  std::vector<T> first = std::vector<T>(kSize), second = std::vector<T>(kSize);

  Moments() {
    std::vector<float> weight(kSize), gradient(kSize);
    for (std::size_t i = 0; i < kSize; ++i) gradient[i] = 1.0f / static_cast<float>(i + 3);
    const std::vector<AdamWTensor> tensors = {{.weight = weight.data(),
                                               .gradient = gradient.data(),
                                               .first_moment = first.data(),
                                               .second_moment = second.data(),
                                               .size = kSize,
                                               .moments = std::is_same_v<T, Bf16> ? DType::bf16 : DType::f32,
                                               .parameter = kParameter}};
    cpu_backend().adamw({.tensors = tensors, .step = kStep, .seed = kSeed});
  }
};

/// In two pieces, of which neither is aligned in the file.
template <typename To, typename From>
std::vector<To> converted(const std::vector<From>& values, Moment which, int threads) {
  constexpr std::size_t kCut = 100'000;
  MomentConversion conversion(cpu_backend(threads).threads(), which, {kSeed, kStep, kParameter});
  std::vector<std::byte> file(1 + sizeof(From) * values.size());
  std::memcpy(file.data() + 1, values.data(), sizeof(From) * values.size());
  const std::span<const std::byte> bytes = std::span(file).subspan(1);
  std::vector<To> result(values.size());
  const auto convert = [&](std::size_t first, std::size_t last) {
    const std::span<const std::byte> piece = conversion.convert(
        bytes.subspan(first * sizeof(From), (last - first) * sizeof(From)),
        std::is_same_v<From, Bf16> ? DType::bf16 : DType::f32, static_cast<std::int64_t>(first));
    ASSERT_EQ(piece.size(), (last - first) * sizeof(To));
    std::memcpy(result.data() + first, piece.data(), piece.size());
  };
  convert(0, kCut);
  convert(kCut, values.size());
  return result;
}

TEST(MomentConversion, RoundsAsTheUpdateWouldHave) {
  const Moments<float> exact;
  const Moments<Bf16> expected;
  for (const int threads : {1, 2}) {
    EXPECT_TRUE(converted<Bf16>(exact.first, Moment::first, threads) == expected.first);
    EXPECT_TRUE(converted<Bf16>(exact.second, Moment::second, threads) == expected.second);
  }
  EXPECT_FALSE(converted<Bf16>(exact.first, Moment::second, 1) == expected.first);
}

TEST(MomentConversion, LosesNothingOnTheWayBack) {
  const Moments<Bf16> moments;
  const std::vector<float> wide = converted<float>(moments.second, Moment::second, 2);
  for (std::size_t i = 0; i < kSize; ++i) ASSERT_EQ(wide[i], moments.second[i].to_f32());
}

TEST(MomentConversion, KnowsTwoTypes) {
  EXPECT_TRUE(MomentConversion::knows(DType::f32, DType::bf16));
  EXPECT_TRUE(MomentConversion::knows(DType::bf16, DType::f32));
  EXPECT_FALSE(MomentConversion::knows(DType::f16, DType::bf16));
  EXPECT_FALSE(MomentConversion::knows(DType::f32, DType::f32));
}

}  // namespace
}  // namespace tetrad::testing::moment_conversion_test
