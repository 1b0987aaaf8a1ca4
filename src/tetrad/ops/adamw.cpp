// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/adamw.h"

#include <cmath>

namespace tetrad {

std::int64_t moment_bytes(std::int64_t size, DType type) { return 2 * size * bits_of(type) / 8; }

std::vector<bool> moments_on_host(std::span<const std::int64_t> sizes, std::int64_t bytes) {
  // Each piece of host memory is pinned by itself, which takes longer than a small one would save.
  constexpr std::int64_t kSmall = 1 << 19;
  std::vector<bool> on_host(sizes.size());
  for (std::size_t i = 0; i < sizes.size() && bytes > 0; ++i) {
    if (sizes[i] < kSmall) continue;
    on_host[i] = true;
    bytes -= sizes[i];
  }
  return on_host;
}

AdamWRates rates_of(const AdamWStep& op) {
  const auto correction = [&](float beta) {
    return static_cast<float>(1.0 /
                              (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(op.step))));
  };
  return {op.learning_rate,
          op.beta1,
          op.beta2,
          op.epsilon,
          op.weight_decay,
          op.gradient_scale,
          correction(op.beta1),
          correction(op.beta2)};
}

}  // namespace tetrad
