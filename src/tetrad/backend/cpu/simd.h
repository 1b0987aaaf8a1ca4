// SPDX-License-Identifier: Apache-2.0
#pragma once
// Portable SIMD through the compilers' vector extension. Shuffles are chosen so that each is one instruction
// on AVX2. Only fused multiply-adds have no operator of their own and are written as intrinsics.

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "tetrad/numerics/bf16.h"

// Before a short loop over registers that the compiler would otherwise keep as a loop over memory.
#if defined(__clang__)
#define TETRAD_UNROLL _Pragma("unroll")
#else
#define TETRAD_UNROLL _Pragma("GCC unroll 16")
#endif

namespace tetrad::cpu {

// may_alias: this type looks at arrays of floats that belong to somebody else.
using F32x16 = float __attribute__((vector_size(64), may_alias));
using U32x16 = std::uint32_t __attribute__((vector_size(64)));
using U32x8 = std::uint32_t __attribute__((vector_size(32)));
using U8x16 = std::uint8_t __attribute__((vector_size(16)));
using U16x16 = std::uint16_t __attribute__((vector_size(32)));
using U64x2 = std::uint64_t __attribute__((vector_size(16)));
using U64x4 = std::uint64_t __attribute__((vector_size(32)));

// A vector as wide as the processor's registers, for kernels that fill all of them.
#if defined(__AVX512F__)
inline constexpr std::int64_t kNativeLanes = 16;
#elif defined(__AVX2__)
inline constexpr std::int64_t kNativeLanes = 8;
#else
inline constexpr std::int64_t kNativeLanes = 4;
#endif
using F32xN = float __attribute__((vector_size(4 * kNativeLanes), may_alias));

inline F32xN load_native(const float* in) {
  F32xN lanes;
  std::memcpy(&lanes, in, sizeof(lanes));
  return lanes;
}
/// The value in all lanes. (Subtracting nothing compiles to nothing; adding it would turn -0 into 0.)
inline F32xN splat(float x) { return x - F32xN{}; }
inline void store_native(F32xN lanes, float* out) { std::memcpy(out, &lanes, sizeof(lanes)); }

/// a * b + c, rounded once. Contraction is off, so that this is the only place where operations are fused,
/// and results do not depend on what a compiler or an instruction set fuses.
[[gnu::always_inline]] inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  // The product is exact in f64. Where the sum is not, its last bit is set (rounding to odd), so that
  // rounding it to f32 gives what rounding the exact sum would.
  const double product = static_cast<double>(a) * b;
  const double sum = product + c;
  const double added = sum - product;
  const double error = (product - (sum - added)) + (c - added);
  const auto bits = std::bit_cast<std::uint64_t>(sum);
  const bool inexact = error > 0 || error < 0;  // not where the sum is infinite or NaN
  const std::uint64_t odd = (bits & 1u) != 0 ? bits : (error > 0) == (sum > 0) ? bits + 1 : bits - 1;
  return static_cast<float>(std::bit_cast<double>(inexact ? odd : bits));
#endif
}

[[gnu::always_inline]] inline F32xN fused(F32xN a, F32xN b, F32xN c) {
#if defined(__AVX512F__)
  return F32xN(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
#elif defined(__AVX2__) && defined(__FMA__)
  return F32xN(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
#elif defined(__aarch64__)
  return F32xN(vfmaq_f32(float32x4_t(c), float32x4_t(a), float32x4_t(b)));
#else
  for (int i = 0; i < kNativeLanes; ++i) c[i] = fused(a[i], b[i], c[i]);
  return c;
#endif
}
[[gnu::always_inline]] inline F32xN fused(float a, F32xN b, F32xN c) { return fused(splat(a), b, c); }

inline F32x16 load_lanes(const float* in) {
  F32x16 lanes;
  std::memcpy(&lanes, in, sizeof(lanes));
  return lanes;
}
inline void store_lanes(F32x16 lanes, float* out) { std::memcpy(out, &lanes, sizeof(lanes)); }

// GCC makes four instructions of each of these conversions. (The masks choose all lanes: without one GCC 12
// warns of a value inside its own header.)
inline U32x16 widen(U16x16 halves) {
#if defined(__AVX512F__)
  return U32x16(_mm512_maskz_cvtepu16_epi32(0xFFFF, __m256i(halves)));
#else
  return __builtin_convertvector(halves, U32x16);
#endif
}
inline U16x16 narrow(U32x16 words) {
#if defined(__AVX512F__)
  return U16x16(_mm512_maskz_cvtepi32_epi16(0xFFFF, __m512i(words)));
#else
  return __builtin_convertvector(words, U16x16);
#endif
}

/// Rounded as Bf16::from_f32 does, kept as f32; finite_… where no lane is NaN.
inline F32x16 finite_rounded_to_bf16(F32x16 lanes) {
  const auto bits = U32x16(lanes);
  return F32x16((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
}
inline F32x16 rounded_to_bf16(F32x16 lanes) {
  const auto bits = U32x16(lanes);
  const U32x16 quiet_nan = (bits | 0x400000u) & 0xFFFF0000u;
  return F32x16((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : U32x16(finite_rounded_to_bf16(lanes)));
}

// load_lanes() and store_lanes() from and to BF16.
inline F32x16 load_lanes(const Bf16* in) {
  U16x16 halves;
  std::memcpy(&halves, in, sizeof(halves));
  return F32x16(widen(halves) << 16);
}
inline void store_lanes(F32x16 lanes, Bf16* out) {
  const U16x16 halves = narrow(U32x16(rounded_to_bf16(lanes)) >> 16);
  std::memcpy(out, &halves, sizeof(halves));
}

/// 64 bytes through one vector. (A plain memcpy of so few may go through 8-byte registers, and the vector
/// load that follows then waits for all of them to reach the cache.)
inline void copy_lanes(const float* in, float* out) { store_lanes(load_lanes(in), out); }

// Interleaving two rows: the lower, or the upper, halves of their 128-bit parts, in units of 8, 16, 32 or 64
// bits.
struct Interleave8 {
  static U8x16 low(U8x16 a, U8x16 b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  }
  static U8x16 high(U8x16 a, U8x16 b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
};
struct Interleave16 {
  static U16x16 low(U16x16 a, U16x16 b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
  }
  static U16x16 high(U16x16 a, U16x16 b) {
    return __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31);
  }
};
struct Interleave32 {
  template <typename Vector>
  static Vector low(Vector a, Vector b) {
    return Vector(__builtin_shufflevector(U32x8(a), U32x8(b), 0, 8, 1, 9, 4, 12, 5, 13));
  }
  template <typename Vector>
  static Vector high(Vector a, Vector b) {
    return Vector(__builtin_shufflevector(U32x8(a), U32x8(b), 2, 10, 3, 11, 6, 14, 7, 15));
  }
};
struct Interleave64 {
  template <typename Vector>
  static Vector low(Vector a, Vector b) {
    return Vector(__builtin_shufflevector(U64x4(a), U64x4(b), 0, 4, 2, 6));
  }
  template <typename Vector>
  static Vector high(Vector a, Vector b) {
    return Vector(__builtin_shufflevector(U64x4(a), U64x4(b), 1, 5, 3, 7));
  }
};
/// The 128-bit parts themselves: both lower ones, or both upper ones.
struct Concatenate128 {
  template <typename Vector>
  static Vector low(Vector a, Vector b) {
    return Vector(__builtin_shufflevector(U64x4(a), U64x4(b), 0, 1, 4, 5));
  }
  template <typename Vector>
  static Vector high(Vector a, Vector b) {
    return Vector(__builtin_shufflevector(U64x4(a), U64x4(b), 2, 3, 6, 7));
  }
};

/// One step of a transposition: in each group of rows, those half a group apart are interleaved. When the
/// groups have grown to as many rows as a 128-bit part has columns, row j of a group holds column j of both
/// parts.
template <typename Step, int kRows, typename Vector>
void interleave_rows(Vector (&rows)[kRows], int group) {
  Vector next[kRows];
  for (int first = 0; first < kRows; first += group)
    for (int i = 0; i < group / 2; ++i) {
      next[first + 2 * i] = Step::low(rows[first + i], rows[first + i + group / 2]);
      next[first + 2 * i + 1] = Step::high(rows[first + i], rows[first + i + group / 2]);
    }
  for (int r = 0; r < kRows; ++r) rows[r] = next[r];
}

/// The last step: rows of the lower and the upper parts come together.
template <int kRows, typename Vector>
void join_halves(Vector (&rows)[kRows]) {
  for (int c = 0; c < kRows / 2; ++c) {
    const Vector a = rows[c];
    const Vector b = rows[c + kRows / 2];
    rows[c] = Concatenate128::low(a, b);
    rows[c + kRows / 2] = Concatenate128::high(a, b);
  }
}

/// rows[r][c] -> rows[c][r].
inline void transpose(U32x8 (&rows)[8]) {
  interleave_rows<Interleave32>(rows, 2);
  interleave_rows<Interleave64>(rows, 4);
  join_halves(rows);
}
inline void transpose(U16x16 (&rows)[16]) {
  interleave_rows<Interleave16>(rows, 2);
  interleave_rows<Interleave32>(rows, 4);
  interleave_rows<Interleave64>(rows, 8);
  join_halves(rows);
}

template <typename Vector>
Vector larger(Vector a, Vector b) {
  return a > b ? a : b;
}

/// Half a transposition: interleaved rows are reduced at once, so that half as many are left.
template <typename Step, int kRows, typename Vector>
void reduce_pairs(Vector (&rows)[kRows], int left) {
  for (int r = 0; r < left / 2; ++r) {
    const Vector a = rows[2 * r];
    const Vector b = rows[2 * r + 1];
    rows[r] = larger(Step::low(a, b), Step::high(a, b));
  }
}

/// Element r of the result is the maximum of rows[r].
inline U32x8 row_maxima(U32x8 (&rows)[8]) {
  reduce_pairs<Interleave32>(rows, 8);
  reduce_pairs<Interleave64>(rows, 4);
  reduce_pairs<Concatenate128>(rows, 2);
  return rows[0];
}
inline U16x16 row_maxima(U16x16 (&rows)[16]) {
  reduce_pairs<Interleave16>(rows, 16);
  reduce_pairs<Interleave32>(rows, 8);
  reduce_pairs<Interleave64>(rows, 4);
  reduce_pairs<Concatenate128>(rows, 2);
  return rows[0];
}

}  // namespace tetrad::cpu
