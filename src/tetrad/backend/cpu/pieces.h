// SPDX-License-Identifier: Apache-2.0
#pragma once
// A list of tensors cut into pieces for threads, by their sizes alone.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace tetrad::cpu {

/// A part of a tensor that one thread works on.
struct Piece {
  std::size_t tensor;
  std::int64_t first, last;
};

template <typename T>
std::vector<Piece> pieces_of(std::span<const T> tensors) {
  constexpr std::int64_t kElements = 1 << 15;
  std::vector<Piece> pieces;
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor)
    for (std::int64_t first = 0; first < tensors[tensor].size; first += kElements)
      pieces.push_back({tensor, first, std::min(first + kElements, tensors[tensor].size)});
  return pieces;
}

}  // namespace tetrad::cpu
