// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the backward pass computes again instead of keeping it since the forward pass: time for memory. The
// results are the same to the bit.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// What each block of a model keeps.
class RecomputePlan {
 public:
  /// Every block, as its letter says.
  RecomputePlan(Recompute recompute = Recompute::none) : recompute_(recompute) {}
  /// Each block by itself, in the order of the pattern.
  explicit RecomputePlan(std::vector<Keep> blocks) : blocks_(std::move(blocks)) {}

  /// For the block of this index, which has this letter.
  Keep of(std::int64_t block, char letter) const;
  /// "ffn" if that is what it comes to, or "full in 3 of 32 feed-forward blocks".
  std::string describe(std::string_view pattern) const;

 private:
  Recompute recompute_ = Recompute::none;
  std::vector<Keep> blocks_;  //!< empty: as `recompute_` says
};

}  // namespace tetrad
