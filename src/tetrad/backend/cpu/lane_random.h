// SPDX-License-Identifier: Apache-2.0
#pragma once
// Philox in SIMD lanes. A product of two words has two words, so a vector has counters in lanes of 64 bits;
// the instruction reads their lower halves alone, and nobody looks at what is in the upper ones.

#include <cstdint>
#include <cstring>

#include "tetrad/backend/cpu/simd.h"
#include "tetrad/backend/cpu/tile.h"
#include "tetrad/numerics/philox.h"

namespace tetrad::cpu {

inline constexpr int kWideLanes = kNativeLanes / 2;
using U64xN = std::uint64_t __attribute__((vector_size(8 * kWideLanes)));

/// The lower half of each lane times b.
[[gnu::always_inline]] inline U64xN multiply_words(U64xN a, std::uint32_t b) {
#if defined(__AVX512F__)
  return U64xN(_mm512_maskz_mul_epu32(0xFF, __m512i(a), _mm512_set1_epi64(b)));
#elif defined(__AVX2__)
  return U64xN(_mm256_mul_epu32(__m256i(a), _mm256_set1_epi64x(b)));
#elif defined(__x86_64__)
  return U64xN(_mm_mul_epu32(__m128i(a), _mm_set1_epi64x(b)));
#elif defined(__aarch64__)
  return U64xN(vmull_u32(vmovn_u64(uint64x2_t(a)), vdup_n_u32(b)));
#else
  return (a & 0xFFFFFFFFu) * b;
#endif
}

/// Sixteen random bytes for each lane.
struct LaneRandom {
  alignas(64) std::uint32_t word[4][kLanes];

  /// Lane l draws for group first + l * step.
  void draw(const RandomStream& stream, std::uint32_t first, std::uint32_t step) {
    constexpr int kVectors = kLanes / kWideLanes;
    U64xN counter[4][kVectors];
    for (int v = 0; v < kVectors; ++v) {
      counter[0][v] = U64xN{} + stream.step;
      counter[1][v] = U64xN{} + stream.microbatch;
      counter[2][v] = U64xN{} + stream.tensor;
      U64xN group = {};
      for (int lane = 0; lane < kWideLanes; ++lane)
        group[lane] = first + static_cast<std::uint32_t>(v * kWideLanes + lane) * step;
      counter[3][v] = group;
    }
    auto low = static_cast<std::uint32_t>(stream.seed);
    auto high = static_cast<std::uint32_t>(stream.seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      TETRAD_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const U64xN p0 = multiply_words(counter[0][v], kPhiloxFirst);
        const U64xN p1 = multiply_words(counter[2][v], kPhiloxSecond);
        counter[0][v] = (p1 >> 32) ^ counter[1][v] ^ low;
        counter[1][v] = p1;
        counter[2][v] = (p0 >> 32) ^ counter[3][v] ^ high;
        counter[3][v] = p0;
      }
      low += kPhiloxLowStep;
      high += kPhiloxHighStep;
    }
    for (int w = 0; w < 4; ++w)
      for (int v = 0; v < kVectors; ++v)
        for (int lane = 0; lane < kWideLanes; ++lane)
          word[w][v * kWideLanes + lane] = static_cast<std::uint32_t>(counter[w][v][lane]);
  }
};

}  // namespace tetrad::cpu
