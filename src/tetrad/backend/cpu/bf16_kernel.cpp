// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/bf16_kernel.h"

#include "tetrad/core/error.h"

#if defined(__AVX512BF16__)

#include <immintrin.h>

#include <array>
#include <cstring>

#include "tetrad/backend/cpu/simd.h"
#include "tetrad/numerics/e2m1.h"

namespace tetrad::cpu {
namespace {

constexpr auto kE2m1Values = [] {
  std::array<float, 1 << 4> values{};
  for (std::uint32_t code = 0; code < values.size(); ++code) values[code] = E2m1::decode(code);
  return values;
}();

template <int kStrips>
void multiply(const Bf16Block& block, bool add, float* sums) {
  F32x16 sum[kBlockRows][kStrips] = {};
  const std::uint32_t* a = block.a;
  const std::uint32_t* b = block.b;
  for (std::int64_t p = 0; p < block.pairs; ++p, a += kStrip, b += kStrip) {
    __m512i right[kStrips];
    TETRAD_UNROLL
    for (int s = 0; s < kStrips; ++s) right[s] = _mm512_loadu_si512(b + s * block.b_stride);
    TETRAD_UNROLL
    for (int r = 0; r < kBlockRows; ++r) {
      const __m512i left = _mm512_set1_epi32(static_cast<int>(a[r]));
      TETRAD_UNROLL
      for (int s = 0; s < kStrips; ++s)
        sum[r][s] = F32x16(_mm512_dpbf16_ps(__m512(sum[r][s]), __m512bh(left), __m512bh(right[s])));
    }
  }

  TETRAD_UNROLL
  for (int r = 0; r < kBlockRows; ++r) TETRAD_UNROLL
  for (int s = 0; s < kStrips; ++s) {
    float* out = sums + r * kBlockCols + s * kStrip;
    store_lanes(add ? load_lanes(out) + sum[r][s] : sum[r][s], out);
  }
}

}  // namespace

bool has_bf16_kernel() { return true; }

void multiply_bf16(const Bf16Block& block, bool add, float* sums) {
  if (block.strips == 3)
    multiply<3>(block, add, sums);
  else if (block.strips == 2)
    multiply<2>(block, add, sums);
  else
    multiply<1>(block, add, sums);
}

void decode_e2m1_tile(const std::uint8_t (&bytes)[kStrip / 2][kStrip], const float (&scales)[kStrip],
                      std::uint32_t* out) {
  const F32x16 scale = load_lanes(scales);
  // Uses the lowest four bits of a lane.
  const auto value = [table = load_lanes(kE2m1Values.data())](U32x16 codes) {
    return F32x16(_mm512_maskz_permutexvar_ps(0xFFFF, __m512i(codes), __m512(table)));
  };
  for (std::int64_t p = 0; p < kStrip / 2; ++p) {
    const auto* line = reinterpret_cast<const __m128i*>(bytes[p]);
    const auto codes = U32x16(_mm512_maskz_cvtepu8_epi32(0xFFFF, _mm_loadu_si128(line)));
    const U32x16 even = U32x16(value(codes) * scale) >> 16;
    const U32x16 odd = U32x16(value(codes >> 4) * scale) & 0xFFFF0000u;
    const U32x16 pairs = even | odd;
    std::memcpy(out + p * kStrip, &pairs, sizeof(pairs));
  }
}

}  // namespace tetrad::cpu

#else

namespace tetrad::cpu {

bool has_bf16_kernel() { return false; }

void multiply_bf16(const Bf16Block& /*block*/, bool /*add*/, float* /*sums*/) {
  throw Error("multiply_bf16: this build has no BF16 kernel; ask has_bf16_kernel() first");
}

void decode_e2m1_tile(const std::uint8_t (&/*bytes*/)[kStrip / 2][kStrip], const float (&/*scales*/)[kStrip],
                      std::uint32_t* /*out*/) {
  throw Error("decode_e2m1_tile: this build has no BF16 kernel; ask has_bf16_kernel() first");
}

}  // namespace tetrad::cpu

#endif
