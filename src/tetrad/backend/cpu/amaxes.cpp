// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/amaxes.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "tetrad/backend/cpu/element.h"

namespace tetrad::cpu {

void amaxes(Threads& threads, const Amaxes& op) {
  constexpr std::int64_t kPiece = 1 << 16;
  constexpr std::uint32_t kMagnitude = 0x7FFFFFFF;
  for (std::size_t tensor = 0; tensor < op.tensors.size(); ++tensor) {
    const auto [values, size] = op.tensors[tensor];
    std::atomic<std::uint32_t> largest = 0;
    parallel_ranges(threads, size, kPiece, [&, values = values](std::int64_t first, std::int64_t last) {
      std::uint32_t of_piece = 0;
      for (std::int64_t i = first; i < last; ++i)
        of_piece = std::max(of_piece, std::bit_cast<std::uint32_t>(values[i]) & kMagnitude);
      std::uint32_t known = largest.load();
      while (known < of_piece && !largest.compare_exchange_weak(known, of_piece)) {
      }
    });
    op.bits[tensor] = largest.load();
  }
}

}  // namespace tetrad::cpu
