// SPDX-License-Identifier: Apache-2.0
#pragma once
// The groups of a step (train.groups): each has gradients of its own, to which its microbatches add in order,
// and the groups are added in the order of a tree, so that it does not matter which rank has which of them.

#include <cstdint>
#include <memory>
#include <vector>

#include "tetrad/core/tensor.h"
#include "tetrad/model/parameter.h"
#include "tetrad/ops/backend.h"

namespace tetrad {

/// How many copies of the gradients wait for others where one rank has so many groups.
int waiting_gradients(std::int64_t groups);

class GradientGroups {
 public:
  /// Room for the groups that one rank has of a step.
  GradientGroups(Backend& backend, const std::vector<std::unique_ptr<Parameter>>& parameters,
                 std::int64_t groups);

  /// The gradients are those of a whole group. After the last group of the step they are the sum of all;
  /// after each other one they are free for the next group's.
  void end_group();

  /// The groups so far do not count.
  void restart() { count_ = 0; }

 private:
  /// gradients = those that wait at this level + gradients
  void add_waiting(std::size_t level);

  Backend& backend_;
  const std::vector<std::unique_ptr<Parameter>>& parameters_;
  std::int64_t groups_;
  std::int64_t count_ = 0;                    //!< bit l: the sum of 2^l groups waits for its neighbour
  std::vector<std::vector<Tensor>> waiting_;  //!< by level and parameter
};

}  // namespace tetrad
