#pragma once
// Small binary floating-point formats: E2M1, E4M3, E5M2 (and the decoder of F16) from one definition.
//
// The casts are written on the bits of |x| and without data-dependent branches, so that the compiler can vectorise a
// loop around them and a GPU thread never diverges.

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tetrad/numerics/host_device.h"

namespace tetrad {

/// 2^exponent as f32; exact for the normal range and for subnormals down to 2^-149.
TETRAD_HD constexpr float exp2_of(int exponent) {
  return exponent >= -126 ? std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23)
                          : std::bit_cast<float>(std::uint32_t{1} << (exponent + 149));
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
  using Code = std::conditional_t<(1 + kExponentBits + kMantissaBits <= 8), std::uint8_t, std::uint16_t>;

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

  /// Round to nearest even, saturating at +-kMax. (NaN saturates too: callers reject non-finite input before.)
  TETRAD_HD static constexpr Code encode(float x) {
    const float a = saturated_magnitude(x);
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(a);
    // Normal range: the usual "add half, tie to the even last bit" on the mantissa, then rebias the exponent.
    const std::uint32_t tie_to_even = (bits >> kDroppedBits) & 1u;
    const std::uint32_t normal = ((bits + (kHalf - 1) + tie_to_even) >> kDroppedBits) - kRebias;
    // Subnormal range: adding a constant whose last bit weighs kMinSubnormal makes the FPU round for us.
    constexpr float kMagic = 1.5f * exp2_of(23) * kMinSubnormal;
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(a + kMagic) - std::bit_cast<std::uint32_t>(kMagic);
    return with_sign(a < kMinNormal ? subnormal : normal, x);
  }

  /// Stochastic rounding as a pure function of the value and one random byte, saturating at +-kMax. With lo <= |x| < hi
  /// the neighbours, rounds up exactly when (|x| - lo)/(hi - lo) + u >= 1; see StochasticBias for u.
  TETRAD_HD static constexpr Code encode_stochastic(float x, std::uint32_t random_byte,
                                                    StochasticBias bias = StochasticBias::centred) {
    const float a = saturated_magnitude(x);
    const std::uint32_t u = 2 * random_byte + static_cast<std::uint32_t>(bias);  // in units of 1/512 of a step
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(a);
    const std::uint32_t normal = ((bits + (u << (kDroppedBits - 9))) >> kDroppedBits) - kRebias;
    // Fixed point with 9 fraction bits. Truncating the rest is exact: u is a multiple of 1/512, so lower bits of the
    // fraction cannot change the comparison with 1.
    const float fixed = (a < kMinNormal ? a : 0.0f) * (512.0f / kMinSubnormal);
    const std::uint32_t subnormal = (static_cast<std::uint32_t>(static_cast<std::int32_t>(fixed)) + u) >> 9;
    return with_sign(a < kMinNormal ? subnormal : normal, x);
  }

 private:
  static constexpr int kDroppedBits = 23 - kMantissaBits;
  static constexpr std::uint32_t kHalf = 1u << (kDroppedBits - 1);
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << kMantissaBits;

  TETRAD_HD static constexpr float saturated_magnitude(float x) {
    const float a = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
    return a < kMax ? a : kMax;
  }

  TETRAD_HD static constexpr Code with_sign(std::uint32_t magnitude, float x) {
    constexpr int kShift = 31 - (kExponentBits + kMantissaBits);
    std::uint32_t sign = (std::bit_cast<std::uint32_t>(x) >> kShift) & kSignBit;
    if constexpr (kNegativeZero == NegativeZero::dropped) sign = x < 0.0f ? kSignBit : 0u;
    return static_cast<Code>(magnitude | sign);
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
