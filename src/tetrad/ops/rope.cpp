// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/rope.h"

#include <cmath>
#include <numbers>

#include "tetrad/core/error.h"
#include "tetrad/ops/check_rows.h"

namespace tetrad {

std::vector<float> rope_frequencies(std::int64_t head_dim, double theta, const RopeScaling* scaling) {
  std::vector<float> frequencies(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (scaling != nullptr) {
      // Long waves are stretched, short ones kept, and those between are blended.
      const double wavelength = 2 * std::numbers::pi / frequency;
      const auto context = static_cast<double>(scaling->original_context);
      const double low = scaling->low_freq_factor;
      const double high = scaling->high_freq_factor;
      if (wavelength > context / low) {
        frequency /= scaling->factor;
      } else if (wavelength >= context / high) {
        const double blend = (context / wavelength - low) / (high - low);
        frequency = (1 - blend) * frequency / scaling->factor + blend * frequency;
      }
    }
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

void check(const Rope& op) {
  TETRAD_CHECK(op.head_dim > 0 && op.head_dim % 2 == 0 && op.x.cols % op.head_dim == 0 && op.sequence > 0 &&
                   op.x.rows % op.sequence == 0,
               "rope: [{}, {}] is not a batch of sequences of {} tokens with heads of {}", op.x.rows,
               op.x.cols, op.sequence, op.head_dim);
  check_rows("rope", "x", op.x, op.x.rows, op.x.cols, op.x.dtype);
}

}  // namespace tetrad
