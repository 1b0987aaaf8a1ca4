// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank tells the others of a step before it is used: every rank decides by all of them, and so alike.

#include <cstdint>
#include <map>
#include <string>

#include "tetrad/ops/communicator.h"

namespace tetrad {

struct StepRecord {
  /// Sums over the tokens of each microbatch, by its number in the step.
  std::map<std::int64_t, double> losses;
  /// Inputs of quantizers that are not finite: the first one of each microbatch that has any.
  std::map<std::int64_t, std::string> non_finite;
  bool interrupted = false;   //!< a signal came between two microbatches
  bool asks_to_save = false;  //!< somebody asked for a checkpoint, or it is time for one
  bool has_saved = false;     //!< the checkpoint that was being written has ended

  /// The sum over all tokens of the step: the same whoever computed which microbatch.
  double loss_sum() const;
};

/// Of all ranks.
StepRecord share(Communicator& ranks, const StepRecord& own);

}  // namespace tetrad
