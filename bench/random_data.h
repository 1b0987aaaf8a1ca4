#pragma once

#include <cstdint>
#include <random>

#include "tetrad/core/buffer.h"
#include "tetrad/numerics/bf16.h"

namespace tetrad::bench {

/// Normal values, the same every time. Never zeros: they are faster than real data.
inline Buffer random_f32(std::int64_t count) {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  Buffer values(static_cast<std::size_t>(count) * sizeof(float));
  for (float& value : values.span<float>()) value = normal(generator);
  return values;
}

inline Buffer to_bf16(const Buffer& values) {
  Buffer result(values.size() / 2);
  for (std::size_t i = 0; i < values.size() / sizeof(float); ++i)
    result.as<Bf16>()[i] = Bf16::from_f32(values.as<float>()[i]);
  return result;
}

}  // namespace tetrad::bench
