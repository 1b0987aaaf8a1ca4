// SPDX-License-Identifier: Apache-2.0
#pragma once
// E2M1 casts of many BF16 values at once: equal to E2m1::encode() and encode_stochastic() for scaled values
// below 7, in fewer instructions. Callers see to that bound and use numerics/ where it does not hold.
//
// Words hold eight magnitudes (codes without sign) as nibbles, or two BF16 values. The sign of a code is that
// of its BF16 value, where -0 has been made +0: E2M1 drops the sign of an exact zero only.

#include <bit>
#include <cmath>
#include <cstdint>

#include "tetrad/backend/cuda/common/words.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/numerics/e2m1.h"
#include "tetrad/numerics/host_device.h"

// Casts to E2M1 are an instruction on Blackwell, where code is compiled for one generation ("100a", "120f").
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000
#define TETRAD_HARDWARE_E2M1
#endif

namespace tetrad::cuda {

/// a * b rounded toward zero, subnormals included.
TETRAD_HD inline float mul_toward_zero(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rz(a, b);
#else
  const double exact = static_cast<double>(a) * static_cast<double>(b);
  const auto nearest = static_cast<float>(exact);
  return std::fabs(static_cast<double>(nearest)) > std::fabs(exact) ? std::nextafter(nearest, 0.0f) : nearest;
#endif
}

TETRAD_HD inline float fused_multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

TETRAD_HD inline float low_bf16(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
TETRAD_HD inline float high_bf16(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xFFFF0000u); }

TETRAD_HD inline std::uint32_t pack_bf16(float low, float high) {
#if defined(__CUDA_ARCH__)
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return Bf16::from_f32(low).bits | static_cast<std::uint32_t>(Bf16::from_f32(high).bits) << 16;
#endif
}

/// In each half: the larger, as unsigned numbers.
TETRAD_HD inline std::uint32_t max_halves(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __vmaxu2(a, b);
#else
  const std::uint32_t low = (a & 0xFFFFu) > (b & 0xFFFFu) ? a & 0xFFFFu : b & 0xFFFFu;
  const std::uint32_t high = (a >> 16) > (b >> 16) ? a >> 16 : b >> 16;
  return high << 16 | low;
#endif
}

/// A pair of BF16 with each -0 made +0: x * 1 + 0.
TETRAD_HD inline std::uint32_t without_negative_zero(std::uint32_t pair) {
#if defined(__CUDA_ARCH__)
  std::uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(pair), "r"(0x3F803F80u), "r"(0u));
  return sum;
#else
  const std::uint32_t low = (pair & 0xFFFFu) == 0x8000u ? 0u : pair & 0xFFFFu;
  const std::uint32_t high = (pair >> 16) == 0x8000u ? 0u : pair >> 16;
  return high << 16 | low;
#endif
}

/// The products of two pairs of BF16, which must be BF16 themselves and not negative.
TETRAD_HD inline std::uint32_t mul_pairs(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  std::uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0u));
  return product;
#else
  return pack_bf16(low_bf16(a) * low_bf16(b), high_bf16(a) * high_bf16(b));
#endif
}

/// Two or four words in one access.
inline constexpr std::uint32_t kSignsOfPair = 0x80008000u;
inline constexpr std::uint32_t kMagnitudesOfPair = 0x7FFF7FFFu;

// --- One value -> a word with its magnitude in one byte ---------------------------------------------------

/// Nearest even, |y| < 7: the magnitude is the low byte. The casts of the three ranges of steps (1/2 below 2,
/// 1 below 4, 2 above) are lines of falling slope in |y|; below, each is right exactly where it is the least.
TETRAD_HD inline std::uint32_t nearest_steps(float y) {
  const float a = std::bit_cast<float>(std::bit_cast<std::uint32_t>(y) & 0x7FFFFFFFu);
  // The sum's last bit weighs one: the addition rounds, ties to even.
  const auto fine = std::bit_cast<std::uint32_t>(fused_multiply_add(a, 2.0f, 0x1p23f));
  const auto middle = std::bit_cast<std::uint32_t>(fused_multiply_add(a, 1.0f, 0x1p23f + 2.0f));
  const auto coarse = std::bit_cast<std::uint32_t>(fused_multiply_add(a, 0.5f, 0x1p23f + 4.0f));
  const std::uint32_t least = fine < middle ? fine : middle;
  return least < coarse ? least : coarse;
}

/// The random bits of byte `index` of a word, where stochastic_steps() adds them: u of numerics.md in units
/// of 2^-24. `bias` is kCentred or kHardware.
inline constexpr std::uint32_t kCentredBias = 0x80u;
inline constexpr std::uint32_t kHardwareBias = 0x00u;
TETRAD_HD inline std::uint32_t noise_of(std::uint32_t random_word, int index, std::uint32_t bias) {
  return byte_perm(random_word, bias, 0x5045u + (static_cast<std::uint32_t>(index) << 8));
}

/// Stochastic, |y| < 8: the magnitude, 0 to 8, is the high byte; 8 stands for 7. Times 2^-126 the exponent
/// and the first bit of the mantissa are the code, also below 1, where f32 has subnormals as E2M1 has; what
/// follows is the fraction. Truncating it is exact, for u is a multiple of 2^-9.
TETRAD_HD inline std::uint32_t stochastic_steps(float y, std::uint32_t noise) {
  const float a = std::bit_cast<float>(std::bit_cast<std::uint32_t>(y) & 0x7FFFFFFFu);
  return (std::bit_cast<std::uint32_t>(mul_toward_zero(a, 0x1p-126f)) << 2) + noise;
}

// --- Eight of those -> nibbles ---------------------------------------------------------------------------

/// Byte kByte of each of four words.
template <int kByte>
TETRAD_HD inline std::uint32_t gather_bytes(const std::uint32_t (&words)[4]) {
  constexpr std::uint32_t kSelect =
      (static_cast<std::uint32_t>(kByte) + 4u) << 4 | static_cast<std::uint32_t>(kByte);
  return byte_perm(byte_perm(words[0], words[1], kSelect), byte_perm(words[2], words[3], kSelect), 0x5410u);
}

/// Magnitudes as nibbles: byte i of the result has those of even[i] and, above it, odd[i].
template <bool kStochastic>
TETRAD_HD inline std::uint32_t magnitude_nibbles(const std::uint32_t (&even)[4],
                                                 const std::uint32_t (&odd)[4]) {
  constexpr int kByte = kStochastic ? 3 : 0;
  const std::uint32_t nibbles = gather_bytes<kByte>(even) + (gather_bytes<kByte>(odd) << 4);
  return kStochastic ? nibbles - ((nibbles >> 3) & 0x11111111u) : nibbles;  // 8 -> 7
}

/// Eight values below 7, to nearest even, as magnitude_nibbles() has them. (Stochastic rounding stays in
/// software on every device: which random bits the instruction adds where is not what numerics.md defines.)
TETRAD_HD inline std::uint32_t nearest_nibbles(const float (&even)[4], const float (&odd)[4]) {
#if defined(TETRAD_HARDWARE_E2M1)
  std::uint32_t codes;
  asm("{ .reg .b8 b0, b1, b2, b3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b0, %5, %1;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b1, %6, %2;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b2, %7, %3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b3, %8, %4;\n"
      "mov.b32 %0, {b0, b1, b2, b3}; }"
      : "=r"(codes)
      : "f"(even[0]), "f"(even[1]), "f"(even[2]), "f"(even[3]), "f"(odd[0]), "f"(odd[1]), "f"(odd[2]),
        "f"(odd[3]));
  return codes & 0x77777777u;
#else
  const std::uint32_t even_steps[4] = {nearest_steps(even[0]), nearest_steps(even[1]), nearest_steps(even[2]),
                                       nearest_steps(even[3])};
  const std::uint32_t odd_steps[4] = {nearest_steps(odd[0]), nearest_steps(odd[1]), nearest_steps(odd[2]),
                                      nearest_steps(odd[3])};
  return magnitude_nibbles<false>(even_steps, odd_steps);
#endif
}

/// The sign bits of codes from the high bytes of their BF16 values, in the order of magnitude_nibbles().
TETRAD_HD inline std::uint32_t sign_nibbles(std::uint32_t even_bytes, std::uint32_t odd_bytes) {
  return ((even_bytes >> 4) & 0x08080808u) | (odd_bytes & 0x80808080u);
}

// --- Nibbles -> BF16 --------------------------------------------------------------------------------------

/// The values of four magnitudes, the low half of `nibbles`: their low and their high bytes as BF16.
struct DecodedBytes {
  std::uint32_t low, high;
};
TETRAD_HD inline DecodedBytes decode_four(std::uint32_t nibbles) {
  return {byte_perm(0xC0800000u, 0xC0804000u, nibbles), byte_perm(0x3F3F3F00u, 0x40404040u, nibbles)};
}
/// Pairs out of those four.
TETRAD_HD inline std::uint32_t pair_01(const DecodedBytes& d) { return byte_perm(d.low, d.high, 0x5140u); }
TETRAD_HD inline std::uint32_t pair_23(const DecodedBytes& d) { return byte_perm(d.low, d.high, 0x7362u); }
TETRAD_HD inline std::uint32_t pair_02(const DecodedBytes& d) { return byte_perm(d.low, d.high, 0x6240u); }
TETRAD_HD inline std::uint32_t pair_13(const DecodedBytes& d) { return byte_perm(d.low, d.high, 0x7351u); }

/// (value, value) as BF16, which it must be exactly.
TETRAD_HD inline std::uint32_t twice(float value) {
  return byte_perm(std::bit_cast<std::uint32_t>(value), 0u, 0x3232u);
}

}  // namespace tetrad::cuda
