// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the backward pass computes again instead of keeping it since the forward pass: time for memory. The
// results are the same to the bit.

#include <cstdint>
#include <string_view>

namespace tetrad {

enum class Recompute : std::uint8_t {
  none,
  cheap,  //!< what a pass over memory gives again: norms, activations, the convolution of Mamba-2
  ffn,    //!< and, of feed-forward blocks, everything
  full,   //!< everything
};

/// "none", "cheap", "ffn", "full".
Recompute recompute_from_name(std::string_view name);
std::string_view name_of(Recompute recompute);

/// What a block keeps from its forward to its backward pass; its input stays in any case.
enum class Keep : std::uint8_t {
  all,
  products,  //!< what took matrix products to make, and the codes that wgrad multiplies
  nothing,
};

/// For the block with this letter of a pattern.
Keep keep_of(Recompute recompute, char letter);

}  // namespace tetrad
