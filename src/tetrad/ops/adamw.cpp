// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/adamw.h"

namespace tetrad {

std::vector<bool> moments_on_host(std::span<const std::int64_t> sizes, std::int64_t bytes) {
  // Each piece of host memory is pinned by itself, which takes longer than a small one would save.
  constexpr std::int64_t kSmall = 1 << 16;
  std::vector<bool> on_host(sizes.size());
  for (std::size_t i = 0; i < sizes.size() && bytes > 0; ++i) {
    if (sizes[i] < kSmall) continue;
    on_host[i] = true;
    bytes -= moment_bytes(sizes[i]);
  }
  return on_host;
}

}  // namespace tetrad
