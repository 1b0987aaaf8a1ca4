// SPDX-License-Identifier: Apache-2.0
#pragma once
// NVFP4 blocks of 16 BF16 values in one thread's registers: transform, maximum, scale, codes. Eight words of
// two values each; which two is for the callers to say.

#include <cstdint>
#include <type_traits>

#include "tetrad/backend/cuda/quantize/e2m1_words.cuh"
#include "tetrad/backend/cuda/quantize/problem.h"
#include "tetrad/backend/cuda/quantize/scale_choice.cuh"

namespace tetrad::cuda {

enum class Transform : std::uint8_t { none, hadamard16, hadamard16_unsigned };

/// Butterflies of the transform of 16 elements before its scaling: exactly hadamard<16>()'s.
template <Transform kTransform>
TETRAD_HD inline void butterflies_16(float (&v)[16]) {
  constexpr SignMask kSigns = kTransform == Transform::hadamard16 ? kFixedSigns : kNoSigns;
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < 16; ++i)
    if (kSigns.is_negative(i)) v[i] = -v[i];
  TETRAD_UNROLL_ON_DEVICE
  for (int stride = 1; stride < 8; stride *= 2) TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < 16; ++i) {
    if ((i & stride) != 0) continue;
    const float a = v[i];
    const float b = v[i + stride];
    v[i] = a + b;
    v[i + stride] = a - b;
  }
}

/// The last butterflies and the scaling by 1/4 in one: a quarter of a f32 that is a sum of BF16 is exact, so
/// that the fused addition rounds where (a + b) * 0.25 does. Not where a + b overflows: such a tensor has
/// been found not to be finite before.
TETRAD_HD inline void last_butterflies_16(float (&v)[16]) {
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < 8; ++i) {
    const float quarter = v[i + 8] * 0.25f;
    const float a = v[i];
    v[i] = fused_multiply_add(a, 0.25f, quarter);
    v[i + 8] = fused_multiply_add(a, 0.25f, -quarter);
  }
}

TETRAD_HD inline float larger_magnitude(float a, float b) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(fabsf(b)));
  return result;
#else
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(b) & 0x7FFFFFFFu;
  return bits > std::bit_cast<std::uint32_t>(a) ? std::bit_cast<float>(bits) : a;
#endif
}

/// The largest magnitude after the butterflies and before scaling; NaN and infinity win.
template <Transform kTransform>
TETRAD_HD inline float transformed_amax(float (&v)[16], float amax) {
  butterflies_16<kTransform>(v);
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < 8; ++i) {
    amax = larger_magnitude(amax, v[i] + v[i + 8]);
    amax = larger_magnitude(amax, v[i] - v[i + 8]);
  }
  return amax;
}
/// The amax of the transformed values: scaling and rounding keep the order, so the largest alone needs them.
TETRAD_HD inline std::uint32_t amax_bits_after_scaling(float amax) {
  return std::bit_cast<std::uint32_t>(round_to_bf16(amax * 0.25f)) & 0x7FFFFFFFu;
}

/// nvfp4::block_scale(), with the casts to and from E4M3 that Hopper has: nearest even, saturating.
TETRAD_HD inline nvfp4::BlockScale fast_block_scale(float amax, const nvfp4::TensorScale& tensor) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  const float unrounded = nvfp4::at_most_float_max(amax * tensor.block_multiplier);
  std::uint16_t byte;
  std::uint32_t halves;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(byte) : "f"(0.0f), "f"(unrounded));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(byte));
  float value;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low; }" : "=f"(value) : "r"(halves));
  return {byte, nvfp4::at_most_float_max(1.0f / (value * tensor.decode))};
#else
  return nvfp4::block_scale(amax, tensor);
#endif
}

/// The scale of a block and whether the fast casts hold for it: no scaled value reaches 7, and none that is
/// not zero becomes zero, which would lose its sign (the smallest BF16 is 2^-133, the smallest f32 2^-149).
struct BlockEncoding {
  std::uint32_t byte;
  float encode;
  bool tame;
};
TETRAD_HD inline BlockEncoding encoding_of(float amax, const nvfp4::BlockScale& scale) {
  return {scale.byte, scale.encode, scale.encode >= 0x1p-16f && amax * scale.encode < 7.0f};
}

/// Eight scaled values, which become magnitudes together: [0][i] and [1][i] the low and the high nibble of
/// byte i. In a block that is not tame they come from numerics/, and so do the signs of the codes.
template <bool kStochastic, bool kTame>
class EightValues {
 public:
  /// `random_byte` of `random_word` are the value's bits. `negative` is set in a block that is not tame.
  TETRAD_HD void put(int nibble, int i, float y, std::uint32_t random_word, int random_byte,
                     std::uint32_t bias, std::uint32_t& negative) {
    if constexpr (kNearest) {
      item_[nibble][i] = y;
    } else if constexpr (kTame) {
      item_[nibble][i] = stochastic_steps(y, noise_of(random_word, random_byte, bias));
    } else {
      std::uint32_t code = 0;
      if constexpr (kStochastic)
        code = E2m1::encode_stochastic(
            y, (random_word >> (8 * random_byte)) & 0xFFu,
            bias == kCentredBias ? StochasticBias::centred : StochasticBias::hardware);
      else
        code = E2m1::encode(y);
      negative = code >> 3;
      item_[nibble][i] = (code & 7u) << (kStochastic ? 24 : 0);
    }
  }
  TETRAD_HD std::uint32_t magnitudes() const {
    if constexpr (kNearest)
      return nearest_nibbles(item_[0], item_[1]);
    else
      return magnitude_nibbles<kStochastic>(item_[0], item_[1]);
  }

 private:
  static constexpr bool kNearest = kTame && !kStochastic;
  using Item = std::conditional_t<kNearest, float, std::uint32_t>;
  Item item_[2][4];  //!< steps, or values that wait for the others
};

TETRAD_HD inline std::uint32_t bias_of(const QuantProblem& p) {
  return p.rounding == Rounding::stochastic ? kCentredBias : kHardwareBias;
}

}  // namespace tetrad::cuda
