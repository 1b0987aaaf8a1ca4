// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW with decoupled weight decay: what a step does to one element, and how moments are kept in BF16.

#include <cmath>
#include <cstdint>

#include "tetrad/numerics/bf16.h"
#include "tetrad/numerics/host_device.h"
#include "tetrad/numerics/philox.h"

namespace tetrad {

/// What all elements of a step share.
struct AdamWRates {
  float learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale;
  float first_correction, second_correction;  //!< 1 / (1 - beta^step)
};

/// `decay`: the weight decay of this tensor.
TETRAD_HD inline void adamw_update(const AdamWRates& rates, float decay, float gradient, float& weight,
                                   float& first, float& second) {
  gradient *= rates.gradient_scale;
  first = rates.beta1 * first + (1.0f - rates.beta1) * gradient;
  second = rates.beta2 * second + (1.0f - rates.beta2) * gradient * gradient;
  const float direction =
      first * rates.first_correction / (std::sqrt(second * rates.second_correction) + rates.epsilon);
  weight -= rates.learning_rate * (direction + decay * weight);
}

/// The random bits with which the moments of one parameter are rounded to BF16 after one step. Four
/// consecutive elements share one Philox call and get a word each: its lower half is for the first moment,
/// its upper half for the second.
struct MomentRounding {
  static constexpr std::int64_t kGroup = 4;
  static constexpr std::uint32_t kUpdate =
      0xFFFFFFFFu;  //!< in the place of the microbatch: none has this number

  RandomStream stream;

  TETRAD_HD constexpr MomentRounding(std::uint64_t seed, std::int64_t step, std::uint32_t parameter)
      : stream{seed, static_cast<std::uint32_t>(step), kUpdate, parameter} {}

  /// The words of the four elements that this one is among.
  TETRAD_HD constexpr PhiloxWords words(std::int64_t element) const {
    return stream.group(static_cast<std::uint32_t>(element / kGroup));
  }

  TETRAD_HD static constexpr Bf16 round_first(float moment, std::uint32_t word) {
    return Bf16::from_f32_stochastic(moment, word & 0xFFFFu);
  }
  TETRAD_HD static constexpr Bf16 round_second(float moment, std::uint32_t word) {
    return Bf16::from_f32_stochastic(moment, word >> 16);
  }
};

}  // namespace tetrad
