#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tetrad/numerics/bf16.h"

namespace tetrad::bench {

/// Normal values, the same every time. Never zeros: they are faster than real data.
inline std::vector<float> random_values(std::int64_t count) {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

inline std::vector<Bf16> to_bf16(const std::vector<float>& values) {
  std::vector<Bf16> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) result[i] = Bf16::from_f32(values[i]);
  return result;
}

}  // namespace tetrad::bench
