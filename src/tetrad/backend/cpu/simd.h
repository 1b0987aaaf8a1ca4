#pragma once
// Portable SIMD through the compilers' vector extension. Shuffles are chosen so that each is one instruction on AVX2.

#include <cstdint>
#include <cstring>

namespace tetrad::cpu {

// may_alias: these types look at arrays of floats that belong to somebody else.
using F32x16 = float __attribute__((vector_size(64), may_alias));
using U32x8 = std::uint32_t __attribute__((vector_size(32), may_alias));

/// in: 8 rows of 8 words, `in_stride` words apart; out likewise: out[c][r] = in[r][c].
inline void transpose_8x8(const std::uint32_t* in, std::int64_t in_stride, std::uint32_t* out, std::int64_t out_stride) {
  U32x8 a[8];
  U32x8 b[8];
  for (int r = 0; r < 8; ++r) std::memcpy(&a[r], in + r * in_stride, sizeof(U32x8));
  for (int r = 0; r < 8; r += 2) {
    b[r] = __builtin_shufflevector(a[r], a[r + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    b[r + 1] = __builtin_shufflevector(a[r], a[r + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int r = 0; r < 8; r += 4)
    for (int i = 0; i < 2; ++i) {
      a[r + 2 * i] = __builtin_shufflevector(b[r + i], b[r + i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      a[r + 2 * i + 1] = __builtin_shufflevector(b[r + i], b[r + i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int r = 0; r < 4; ++r) {
    b[r] = __builtin_shufflevector(a[r], a[r + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[r + 4] = __builtin_shufflevector(a[r], a[r + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int r = 0; r < 8; ++r) std::memcpy(out + r * out_stride, &b[r], sizeof(U32x8));
}

}  // namespace tetrad::cpu
