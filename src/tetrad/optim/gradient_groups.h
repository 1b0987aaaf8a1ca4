// SPDX-License-Identifier: Apache-2.0
#pragma once
// The groups of a step (train.groups): each has gradients of its own, to which its microbatches add in order,
// and the groups are added in the order of a tree, so that it does not matter which rank has which of them.

#include <cstdint>
#include <span>
#include <vector>

#include "tetrad/core/tensor.h"
#include "tetrad/ops/backend.h"

namespace tetrad {

/// How many copies of the gradients wait for others where so many groups are added one after the other.
int waiting_gradients(std::int64_t groups);

class GradientGroups {
 public:
  /// Room for sums of `groups` values each, which all lie in `tensors`, one after the other.
  GradientGroups(Backend& backend, std::vector<std::span<float>> tensors, std::int64_t groups);

  /// The tensor of this index has the values of a whole group. Where that is the last of the step, it then
  /// has the sum of all; otherwise it is free for the next.
  void end_group(std::size_t index);
  /// All tensors have ended the group.
  void next_group() { count_ = is_last() ? 0 : count_ + 1; }
  bool is_last() const { return count_ + 1 == groups_; }

  /// The groups so far do not count.
  void restart() { count_ = 0; }

 private:
  Backend& backend_;
  std::vector<std::span<float>> tensors_;
  std::int64_t groups_;
  std::int64_t count_ = 0;                    //!< bit l: the sum of 2^l groups waits for its neighbour
  std::vector<std::vector<Tensor>> waiting_;  //!< by level and tensor
};

}  // namespace tetrad
