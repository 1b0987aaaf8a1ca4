#pragma once
// Portable SIMD through the compilers' vector extension. Shuffles are chosen so that each is one instruction
// on AVX2.

#include <cstdint>
#include <cstring>

namespace tetrad::cpu {

// may_alias: this type looks at arrays of floats that belong to somebody else.
using F32x16 = float __attribute__((vector_size(64), may_alias));
using U32x8 = std::uint32_t __attribute__((vector_size(32)));
using U16x16 = std::uint16_t __attribute__((vector_size(32)));

/// 64 bytes through one vector. (A plain memcpy of so few may go through 8-byte registers, and the vector load that
/// follows then waits for all of them to reach the cache.)
inline void copy_lanes(const float* in, float* out) {
  F32x16 lanes;
  std::memcpy(&lanes, in, sizeof(lanes));
  std::memcpy(out, &lanes, sizeof(lanes));
}

/// One step of a transposition: pairs of rows, half a group apart, are interleaved. When the groups have
/// grown to the number of columns in a 128-bit half, row j of each group holds column j of it.
template <int kRows, typename Vector, typename Low, typename High>
void interleave_rows(Vector (&rows)[kRows], int group, const Low& low, const High& high) {
  Vector next[kRows];
  for (int first = 0; first < kRows; first += group)
    for (int i = 0; i < group / 2; ++i) {
      next[first + 2 * i] = low(rows[first + i], rows[first + i + group / 2]);
      next[first + 2 * i + 1] = high(rows[first + i], rows[first + i + group / 2]);
    }
  for (int r = 0; r < kRows; ++r) rows[r] = next[r];
}

/// in: 8 rows of 8 words, `in_stride` words apart; out likewise: out[c][r] = in[r][c].
inline void transpose_8x8(const std::uint32_t* in, std::int64_t in_stride, std::uint32_t* out,
                          std::int64_t out_stride) {
  U32x8 rows[8];
  for (int r = 0; r < 8; ++r) std::memcpy(&rows[r], in + r * in_stride, sizeof(U32x8));
  interleave_rows(
      rows, 2, [](U32x8 a, U32x8 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13); },
      [](U32x8 a, U32x8 b) { return __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15); });
  interleave_rows(
      rows, 4, [](U32x8 a, U32x8 b) { return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13); },
      [](U32x8 a, U32x8 b) { return __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15); });
  for (int c = 0; c < 4; ++c) {
    const U32x8 lower = __builtin_shufflevector(rows[c], rows[c + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    const U32x8 upper = __builtin_shufflevector(rows[c], rows[c + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    std::memcpy(out + c * out_stride, &lower, sizeof(U32x8));
    std::memcpy(out + (c + 4) * out_stride, &upper, sizeof(U32x8));
  }
}

/// rows[r][c] -> rows[c][r].
inline void transpose_16x16(U16x16 (&rows)[16]) {
  interleave_rows(
      rows, 2,
      [](U16x16 a, U16x16 b) {
        return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
      },
      [](U16x16 a, U16x16 b) {
        return __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31);
      });
  interleave_rows(
      rows, 4,
      [](U16x16 a, U16x16 b) {
        return __builtin_shufflevector(a, b, 0, 1, 16, 17, 2, 3, 18, 19, 8, 9, 24, 25, 10, 11, 26, 27);
      },
      [](U16x16 a, U16x16 b) {
        return __builtin_shufflevector(a, b, 4, 5, 20, 21, 6, 7, 22, 23, 12, 13, 28, 29, 14, 15, 30, 31);
      });
  interleave_rows(
      rows, 8,
      [](U16x16 a, U16x16 b) {
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
      },
      [](U16x16 a, U16x16 b) {
        return __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
      });
  for (int c = 0; c < 8; ++c) {
    const U16x16 a = rows[c];
    const U16x16 b = rows[c + 8];
    rows[c] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    rows[c + 8] = __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
}

}  // namespace tetrad::cpu
