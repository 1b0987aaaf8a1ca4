// SPDX-License-Identifier: Apache-2.0
#pragma once
// A sum in the order of a binary tree over the positions of what is added.

#include <cstdint>

#include "tetrad/numerics/host_device.h"

namespace tetrad {

/// Neighbours are added, (0, 1), (2, 3), …, then neighbouring sums, until one is left; the last of an odd
/// number moves up as it is. So what lies at 2^k · j … 2^k · (j + 1) - 1 is always summed by itself first.
///
/// Values come one after another, at least one and fewer than 2^kLevels. Bit l of their number says whether a
/// sum of 2^l of them waits for its neighbour.
template <typename Value, int kLevels>
class TreeSum {
 public:
  TETRAD_HD constexpr void add(Value value) {
    bool is_placed = false;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int level = 0; level < kLevels; ++level) {
#if !defined(__CUDA_ARCH__)
      if (is_placed) break;  // a GPU would then no longer keep what waits in registers
#endif
      const bool has_neighbour = (count_ >> level & 1u) != 0;
      if (!is_placed && has_neighbour) value = waiting_[level] + value;
      if (!is_placed && !has_neighbour) waiting_[level] = value;
      is_placed = is_placed || !has_neighbour;
    }
    ++count_;
  }

  TETRAD_HD constexpr Value total() const {
    Value sum = {};
    bool is_first = true;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int level = 0; level < kLevels; ++level) {
      if ((count_ >> level & 1u) == 0) continue;
      sum = is_first ? waiting_[level] : waiting_[level] + sum;
      is_first = false;
    }
    return sum;
  }

 private:
  Value waiting_[kLevels] = {};
  std::uint32_t count_ = 0;
};

}  // namespace tetrad
