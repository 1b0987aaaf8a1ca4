// SPDX-License-Identifier: Apache-2.0
// The GPU's casts in words against the definition, on the host: their arithmetic is the same there.

#include "tetrad/backend/cuda/quantize/e2m1_words.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <tuple>

#include "tetrad/numerics/e2m1.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad::cuda {
namespace {

constexpr std::uint32_t kMagnitude = 0x7u;

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

/// Calls body(y) for y and the floats next to it, all magnitudes below `limit`.
template <typename Body>
void around(float y, int neighbours, float limit, const Body& body) {
  for (int i = -neighbours; i <= neighbours; ++i) {
    const std::int64_t at = static_cast<std::int64_t>(bits(y)) + i;
    if (at < 0 || at >= static_cast<std::int64_t>(bits(limit))) continue;
    body(std::bit_cast<float>(static_cast<std::uint32_t>(at)));
  }
}

TEST(E2m1Words, NearestStepsAreTheCodeBelowSeven) {
  const auto check = [](float y) {
    const std::uint32_t code = E2m1::encode(y) & kMagnitude;
    if ((nearest_steps(y) & 0xFFu) != code || (nearest_steps(-y) & 0xFFu) != code) ADD_FAILURE() << y;
  };
  for (int quarter = 0; quarter <= 28; ++quarter)  // every tie and every value
    around(static_cast<float>(quarter) * 0.25f, 5000, 7.0f, check);
  for (std::uint32_t at = 0; at < bits(7.0f); at += 977) check(std::bit_cast<float>(at));
}

TEST(E2m1Words, StochasticStepsAreTheCodeBelowEight) {
  const auto check = [](float y, std::uint32_t byte, std::uint32_t bias) {
    const auto mode = bias == kCentredBias ? StochasticBias::centred : StochasticBias::hardware;
    const std::uint32_t word = byte << 16 | 0xA500C3C3u;  // the other bytes must not matter
    const std::uint32_t steps = stochastic_steps(y, noise_of(word, 2, bias)) >> 24;
    const bool equal = std::min(steps, kMagnitude) == (E2m1::encode_stochastic(y, byte, mode) & kMagnitude);
    if (!equal || steps > 8) ADD_FAILURE() << y << " " << byte << " " << bias;
  };
  // u is a multiple of 1/512 of a step, so that decisions change at such multiples only.
  for (const auto& [begin, end, step] :
       {std::tuple{0.0f, 2.0f, 0.5f}, {2.0f, 4.0f, 1.0f}, {4.0f, 8.0f, 2.0f}})
    for (float y = begin; y < end; y += step / 512)
      for (std::uint32_t byte = 0; byte < 256; ++byte)
        around(y, 1, 8.0f, [&](float near) {
          check(near, byte, kCentredBias);
          check(near, byte, kHardwareBias);
        });
  std::mt19937 engine(7);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int i = 0; i < 2'000'000; ++i)
    check(std::bit_cast<float>(random() % bits(8.0f)), random() & 0xFFu, kCentredBias);
}

TEST(E2m1Words, NoiseTakesEachByte) {
  for (int byte = 0; byte < 4; ++byte)
    EXPECT_EQ(noise_of(0x44332211u, byte, kCentredBias),
              0x110000u * (static_cast<std::uint32_t>(byte) + 1) | 0x8000u);
}

TEST(E2m1Words, NibblesAndSignsLieAsPackedCodesDo) {
  std::mt19937 engine(3);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int trial = 0; trial < 1000; ++trial) {
    std::uint32_t even[4];
    std::uint32_t odd[4];
    std::uint32_t even_signs = 0;
    std::uint32_t odd_signs = 0;
    std::uint32_t expected = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t a = random() % 9;
      const std::uint32_t b = random() % 9;
      const std::uint32_t noise = random();
      const std::uint32_t sign_a = noise & 1u;
      const std::uint32_t sign_b = noise >> 1 & 1u;
      even[i] = a << 24 | noise >> 8;
      odd[i] = b << 24 | noise >> 9;
      even_signs |= (sign_a << 7 | (noise >> 4 & 0x7Fu))
                    << (8 * i);  // what is beside the sign must not matter
      odd_signs |= (sign_b << 7 | (noise >> 5 & 0x7Fu)) << (8 * i);
      expected |=
          static_cast<std::uint32_t>(pack_e2m1(std::min(a, 7u) | sign_a << 3, std::min(b, 7u) | sign_b << 3))
          << (8 * i);
    }
    ASSERT_EQ(magnitude_nibbles<true>(even, odd) | sign_nibbles(even_signs, odd_signs), expected);
  }
}

TEST(E2m1Words, NearestNibblesAreTheCodesOfTheirPlaces) {
  std::mt19937 engine(5);
  for (int trial = 0; trial < 100000; ++trial) {
    float even[4];
    float odd[4];
    std::uint32_t expected = 0;
    for (int i = 0; i < 4; ++i) {
      const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
      even[i] = std::bit_cast<float>(random() % bits(7.0f) | (random() & 0x80000000u));
      odd[i] = std::bit_cast<float>(bits(0.25f) + random() % (bits(7.0f) - bits(0.25f)));
      expected |= (E2m1::encode(even[i]) & kMagnitude) << (8 * i);
      expected |= (E2m1::encode(odd[i]) & kMagnitude) << (8 * i + 4);
    }
    ASSERT_EQ(nearest_nibbles(even, odd), expected);
  }
}

TEST(E2m1Words, DecodesEveryCodeTimesEveryScale) {
  for (std::uint32_t scale_byte = 0; scale_byte <= E4m3::kMaxCode; ++scale_byte)
    for (std::uint32_t nibbles = 0; nibbles < 0x8888u; ++nibbles) {
      if ((nibbles & 0x8888u) != 0 || (scale_byte % 16 != 5 && nibbles % 7 != 0)) continue;
      const std::uint32_t scale = twice(E4m3::decode(scale_byte));
      const DecodedBytes values = decode_four(nibbles);
      const auto value = [&](int i) {
        return nvfp4::decode_without_tensor_scale(nibbles >> (4 * i) & 7u, scale_byte);
      };
      ASSERT_EQ(mul_pairs(pair_01(values), scale), pack_bf16(value(0), value(1)));
      ASSERT_EQ(mul_pairs(pair_23(values), scale), pack_bf16(value(2), value(3)));
      ASSERT_EQ(mul_pairs(pair_02(values), scale), pack_bf16(value(0), value(2)));
      ASSERT_EQ(mul_pairs(pair_13(values), scale), pack_bf16(value(1), value(3)));
    }
}

}  // namespace
}  // namespace tetrad::cuda
