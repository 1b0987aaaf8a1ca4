// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small binary floating-point formats: E2M1, E4M3 (and the decoder of F16) from one definition.
//
// The casts are written on the bits of |x| and without data-dependent branches, so that the compiler can
// vectorise a loop around them and a GPU thread never diverges. Codes travel as 32-bit words for the same
// reason: lanes of one width.

#include <bit>
#include <cstdint>
#include <limits>

#include "tetrad/numerics/host_device.h"

namespace tetrad {

/// 2^exponent as f32; exact for the normal range and for subnormals down to 2^-149.
TETRAD_HD constexpr float exp2_of(int exponent) {
  return exponent >= -126 ? std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23)
                          : std::bit_cast<float>(std::uint32_t{1} << (exponent + 149));
}

TETRAD_HD constexpr float magnitude_of(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
}

/// How stochastic rounding turns a random byte r into the threshold u that is added to the fraction.
enum class StochasticBias : std::uint32_t {
  hardware = 0,  //!< u = r/256: what software paths for Blackwell do; mean bias -1/512 of a step.
  centred = 1,   //!< u = (r + 1/2)/256: mean bias 0. The default.
};

/// Codes above the largest finite one.
enum class Specials { none, nan_only, inf_and_nan };

/// What an exact -0.0 becomes. (A negative value that rounds to zero keeps its sign in every format.)
enum class NegativeZero { kept, dropped };

template <int kExponentBits, int kMantissaBits, int kBias, std::uint32_t kMaxMagnitude, Specials kSpecials,
          NegativeZero kNegativeZero>
struct Minifloat {
  static constexpr std::uint32_t kSignBit = 1u << (kExponentBits + kMantissaBits);
  static constexpr std::uint32_t kMagnitudeMask = kSignBit - 1;
  static constexpr std::uint32_t kMaxCode = kMaxMagnitude;
  static constexpr float kMinNormal = exp2_of(1 - kBias);
  static constexpr float kMinSubnormal = exp2_of(1 - kBias - kMantissaBits);

  TETRAD_HD static constexpr float decode(std::uint32_t code) {
    const std::uint32_t magnitude = code & kMagnitudeMask;
    const float normal = std::bit_cast<float>((magnitude << kDroppedBits) + (kRebias << kDroppedBits));
    const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * kMinSubnormal;
    float value = magnitude < (1u << kMantissaBits) ? subnormal : normal;
    if constexpr (kSpecials != Specials::none) value = magnitude > kMaxMagnitude ? special(magnitude) : value;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign_to_f32(code));
  }

  static constexpr float kMax = decode(kMaxMagnitude);

  /// Round to nearest even, saturating at +-kMax. (NaN saturates too: callers reject non-finite input
  /// before.)
  TETRAD_HD static constexpr std::uint32_t encode(float x) {
    const float a = saturated_magnitude(x);
    const std::uint32_t exponent = clamped_exponent(a);
    // Adding a power of two whose last bit weighs one step of the format makes the FPU round, ties to even,
    // for us.
    const std::uint32_t magic = exponent + (static_cast<std::uint32_t>(kDroppedBits) << 23);
    const std::uint32_t steps = std::bit_cast<std::uint32_t>(a + std::bit_cast<float>(magic)) - magic;
    return with_sign(steps + binade(exponent), x);
  }

  /// |decode(encode(x))|, without the code in between.
  TETRAD_HD static constexpr float rounded_magnitude(float x) {
    const float a = saturated_magnitude(x);
    const auto magic =
        std::bit_cast<float>(clamped_exponent(a) + (static_cast<std::uint32_t>(kDroppedBits) << 23));
    return (a + magic) - magic;
  }

  /// Stochastic rounding as a pure function of the value and one random byte, saturating at +-kMax. With lo
  /// <= |x| < hi the neighbours, rounds up exactly when (|x| - lo)/(hi - lo) + u >= 1; see StochasticBias for
  /// u.
  TETRAD_HD static constexpr std::uint32_t encode_stochastic(float x, std::uint32_t random_byte,
                                                             StochasticBias bias = StochasticBias::centred) {
    return encode_with_threshold(x, 2 * random_byte + static_cast<std::uint32_t>(bias));
  }

  /// The same, with u in units of 1/512.
  TETRAD_HD static constexpr std::uint32_t encode_with_threshold(float x, std::uint32_t threshold) {
    const float a = saturated_magnitude(x);
    const std::uint32_t exponent = clamped_exponent(a);
    // |x| in units of 1/512 of a step. Truncating what is below is exact: u is a multiple of 1/512, so lower
    // bits cannot change the comparison with 1.
    const std::uint32_t scale = (static_cast<std::uint32_t>(2 * 127 + kMantissaBits + 9) << 23) - exponent;
    const auto fixed = static_cast<std::uint32_t>(static_cast<std::int32_t>(a * std::bit_cast<float>(scale)));
    const std::uint32_t steps = (fixed + threshold) >> 9;
    return with_sign(steps + binade(exponent), x);
  }

 private:
  static constexpr int kDroppedBits = 23 - kMantissaBits;
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << kMantissaBits;

  TETRAD_HD static constexpr float saturated_magnitude(float x) {
    // Positive floats are ordered as their bits, and NaN is above them all.
    constexpr std::uint32_t kMaxBits = std::bit_cast<std::uint32_t>(kMax);
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu;
    return std::bit_cast<float>(bits < kMaxBits ? bits : kMaxBits);
  }

  /// The exponent field of a, in place in an f32, but never below that of kMinNormal: subnormals of the
  /// format share the step of its first binade.
  TETRAD_HD static constexpr std::uint32_t clamped_exponent(float a) {
    constexpr std::uint32_t kLowest = static_cast<std::uint32_t>(128 - kBias) << 23;
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(a) & 0x7F800000u;
    return exponent > kLowest ? exponent : kLowest;
  }

  /// What to add to the number of steps, hidden bit included, to get the code.
  TETRAD_HD static constexpr std::uint32_t binade(std::uint32_t exponent) {
    return (exponent >> kDroppedBits) - (static_cast<std::uint32_t>(128 - kBias) << kMantissaBits);
  }

  TETRAD_HD static constexpr std::uint32_t with_sign(std::uint32_t magnitude, float x) {
    constexpr int kShift = 31 - (kExponentBits + kMantissaBits);
    std::uint32_t sign = (std::bit_cast<std::uint32_t>(x) >> kShift) & kSignBit;
    if constexpr (kNegativeZero == NegativeZero::dropped) sign = x < 0.0f ? kSignBit : 0u;
    return magnitude | sign;
  }

  TETRAD_HD static constexpr std::uint32_t sign_to_f32(std::uint32_t code) {
    return (code & kSignBit) << (31 - (kExponentBits + kMantissaBits));
  }

  TETRAD_HD static constexpr float special(std::uint32_t magnitude) {
    if constexpr (kSpecials == Specials::inf_and_nan)
      if (magnitude == kMaxMagnitude + 1) return std::numeric_limits<float>::infinity();
    return std::numeric_limits<float>::quiet_NaN();
  }
};

}  // namespace tetrad
