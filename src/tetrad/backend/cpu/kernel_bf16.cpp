// SPDX-License-Identifier: Apache-2.0
// Only the functions that are marked so are compiled with the BF16 instructions: nothing else of the variant
// may use them.

#include "tetrad/backend/cpu/kernel_bf16.h"

#include "tetrad/backend/cpu/simd.h"

#if defined(__AVX512F__)

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kRows = KernelBf16::kRows;
constexpr std::int64_t kRowStride = KernelBf16::kStrips * kStrip;

template <int kStrips>
[[gnu::target("avx512bf16")]] void multiply_strips(const KernelBf16::Block& block, bool go_on, float* sums) {
  __m512 sum[kRows][kStrips];
  TETRAD_UNROLL
  for (int r = 0; r < kRows; ++r) TETRAD_UNROLL
  for (int s = 0; s < kStrips; ++s)
    sum[r][s] = go_on ? _mm512_loadu_ps(sums + r * kRowStride + s * kStrip) : _mm512_setzero_ps();
  const std::uint32_t* a = block.a;
  const std::uint32_t* b = block.b;
  for (std::int64_t p = 0; p < block.pairs; ++p, a += kStrip, b += kStrip) {
    __m512i right[kStrips];
    TETRAD_UNROLL
    for (int s = 0; s < kStrips; ++s) right[s] = _mm512_loadu_si512(b + s * block.b_stride);
    TETRAD_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512i left = _mm512_set1_epi32(static_cast<int>(a[r]));
      TETRAD_UNROLL
      for (int s = 0; s < kStrips; ++s)
        sum[r][s] = _mm512_dpbf16_ps(sum[r][s], __m512bh(left), __m512bh(right[s]));
    }
  }
  TETRAD_UNROLL
  for (int r = 0; r < kRows; ++r) TETRAD_UNROLL
  for (int s = 0; s < kStrips; ++s) _mm512_storeu_ps(sums + r * kRowStride + s * kStrip, sum[r][s]);
}

}  // namespace

void KernelBf16::multiply(const Block& block, bool go_on, float* sums) {
  if (block.strips == 3)
    multiply_strips<3>(block, go_on, sums);
  else if (block.strips == 2)
    multiply_strips<2>(block, go_on, sums);
  else
    multiply_strips<1>(block, go_on, sums);
}

}  // namespace tetrad::cpu

#elif defined(__aarch64__)

namespace tetrad::cpu {

[[gnu::target("arch=armv8.2-a+bf16")]] void KernelBf16::multiply(const Block& block, bool go_on,
                                                                 float* sums) {
  constexpr int kVectors = kStrip / 4;
  float32x4_t sum[kRows][kVectors];
  TETRAD_UNROLL
  for (int r = 0; r < kRows; ++r) TETRAD_UNROLL
  for (int v = 0; v < kVectors; ++v)
    sum[r][v] = go_on ? vld1q_f32(sums + r * kStrip + 4 * v) : vdupq_n_f32(0);
  const std::uint32_t* a = block.a;
  const std::uint32_t* b = block.b;
  for (std::int64_t p = 0; p < block.pairs; ++p, a += kStrip, b += kStrip) {
    bfloat16x8_t right[kVectors];
    TETRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) right[v] = vreinterpretq_bf16_u32(vld1q_u32(b + 4 * v));
    TETRAD_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const bfloat16x8_t left = vreinterpretq_bf16_u32(vdupq_n_u32(a[r]));
      TETRAD_UNROLL
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = vbfmlalbq_f32(vbfmlaltq_f32(sum[r][v], left, right[v]), left, right[v]);
    }
  }
  TETRAD_UNROLL
  for (int r = 0; r < kRows; ++r) TETRAD_UNROLL
  for (int v = 0; v < kVectors; ++v) vst1q_f32(sums + r * kStrip + 4 * v, sum[r][v]);
}

}  // namespace tetrad::cpu

#endif
