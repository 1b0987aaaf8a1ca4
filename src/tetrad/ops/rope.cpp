#include "tetrad/ops/rope.h"

#include <cmath>
#include <numbers>

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

}  // namespace tetrad
