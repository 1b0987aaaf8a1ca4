// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "tetrad/core/threads.h"
#include "tetrad/numerics/philox.h"
#include "tetrad/ops/backend.h"

namespace tetrad::bench {

/// Normal values, the same every time. Never zeros: they are faster than real data.
inline Tensor random_tensor(Backend& backend, DType dtype, std::int64_t rows, std::int64_t cols,
                            std::uint32_t seed) {
  constexpr std::int64_t kPiece = 1 << 14;
  const std::int64_t size = rows * cols;
  Buffer values(static_cast<std::size_t>(size * bits_of(dtype) / 8));
  backend.threads().parallel_for((size + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    for (std::int64_t i = piece * kPiece; i < std::min(size, (piece + 1) * kPiece); ++i) {
      const PhiloxWords words = philox4x32_10({static_cast<std::uint32_t>(i), 0, seed, 0}, {1, 2});
      const float radius = std::sqrt(-2 * std::log((static_cast<float>(words[0] >> 8) + 0.5f) * 0x1p-24f));
      const float angle = 2 * std::numbers::pi_v<float> * static_cast<float>(words[1] >> 8) * 0x1p-24f;
      const float value = radius * std::cos(angle);
      if (dtype == DType::bf16)
        values.as<Bf16>()[i] = Bf16::from_f32(value);
      else
        values.as<float>()[i] = value;
    }
  });
  Tensor tensor = backend.make_tensor(dtype, rows, cols);
  backend.upload(values.span<std::byte>(), tensor.bytes());
  return tensor;
}

}  // namespace tetrad::bench
