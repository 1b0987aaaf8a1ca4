// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/kernel_f32.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kRows = KernelF32::kRows;
constexpr std::int64_t kRowStride = KernelF32::kStrips * KernelF32::kStripB;

/// sum = fused(left, right, sum). With sixteen registers, all of them in use, GCC chooses forms of the
/// instruction that overwrite a factor, and keeps sums in memory instead.
[[gnu::always_inline]] inline void add_product(F32xN left, F32xN right, F32xN& sum) {
#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(left), "x"(right));
#else
  sum = fused(left, right, sum);
#endif
}

template <int kStrips>
[[gnu::always_inline]] inline void add_line(const float* a, const float* b, std::int64_t b_stride,
                                            F32xN (&sum)[kRows][kStrips]) {
  F32xN right[kStrips];
  TETRAD_UNROLL
  for (int s = 0; s < kStrips; ++s) right[s] = load_native(b + s * b_stride);
  TETRAD_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const F32xN left = splat(a[r]);
    TETRAD_UNROLL
    for (int s = 0; s < kStrips; ++s) add_product(left, right[s], sum[r][s]);
  }
}

template <int kStrips>
void multiply_strips(const KernelF32::Block& block, bool go_on, float* sums) {
  F32xN sum[kRows][kStrips] = {};
  if (go_on) {
    TETRAD_UNROLL
    for (int r = 0; r < kRows; ++r) TETRAD_UNROLL
    for (int s = 0; s < kStrips; ++s) sum[r][s] = load_native(sums + r * kRowStride + s * kNativeLanes);
  }
  const float* a = block.a;
  const float* b = block.b;
  for (std::int64_t p = 0; p < block.pairs; ++p, a += 2 * kRows, b += 2 * kNativeLanes) {
    add_line<kStrips>(a + kRows, b + kNativeLanes, block.b_stride, sum);
    add_line<kStrips>(a, b, block.b_stride, sum);
  }
  TETRAD_UNROLL
  for (int r = 0; r < kRows; ++r) TETRAD_UNROLL
  for (int s = 0; s < kStrips; ++s) store_native(sum[r][s], sums + r * kRowStride + s * kNativeLanes);
}

}  // namespace

void KernelF32::multiply(const Block& block, bool go_on, float* sums) {
  if (block.strips == 3)
    multiply_strips<3>(block, go_on, sums);
  else if (block.strips == 2)
    multiply_strips<2>(block, go_on, sums);
  else
    multiply_strips<1>(block, go_on, sums);
}

}  // namespace tetrad::cpu
