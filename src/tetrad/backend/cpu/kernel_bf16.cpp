// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/kernel_bf16.h"

#include "tetrad/core/error.h"

#if defined(__AVX512BF16__)

#include <immintrin.h>

#include "tetrad/backend/cpu/simd.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kRows = KernelBf16::kRows;
constexpr std::int64_t kRowStride = KernelBf16::kStrips * kStrip;

template <int kStrips>
void multiply_strips(const KernelBf16::Block& block, bool go_on, float* sums) {
  F32x16 sum[kRows][kStrips] = {};
  if (go_on) {
    TETRAD_UNROLL
    for (int r = 0; r < kRows; ++r) TETRAD_UNROLL
    for (int s = 0; s < kStrips; ++s) sum[r][s] = load_lanes(sums + r * kRowStride + s * kStrip);
  }
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
        sum[r][s] = F32x16(_mm512_dpbf16_ps(__m512(sum[r][s]), __m512bh(left), __m512bh(right[s])));
    }
  }
  TETRAD_UNROLL
  for (int r = 0; r < kRows; ++r) TETRAD_UNROLL
  for (int s = 0; s < kStrips; ++s) store_lanes(sum[r][s], sums + r * kRowStride + s * kStrip);
}

}  // namespace

bool has_bf16_kernel() { return true; }

void KernelBf16::multiply(const Block& block, bool go_on, float* sums) {
  if (block.strips == 3)
    multiply_strips<3>(block, go_on, sums);
  else if (block.strips == 2)
    multiply_strips<2>(block, go_on, sums);
  else
    multiply_strips<1>(block, go_on, sums);
}

}  // namespace tetrad::cpu

#else

namespace tetrad::cpu {

bool has_bf16_kernel() { return false; }

void KernelBf16::multiply(const Block& /*block*/, bool /*go_on*/, float* /*sums*/) {
  throw Error("KernelBf16: this build has no BF16 kernel; ask has_bf16_kernel() first");
}

}  // namespace tetrad::cpu

#endif
