// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank tells the others of a step before it is used: every rank decides by all of them, and so alike.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/ops/communicator.h"

namespace tetrad {

struct StepRecord {
  std::vector<double> losses;             //!< sums over the tokens of each microbatch, in order
  std::optional<std::string> non_finite;  //!< the first input of a quantizer that is not finite
  bool interrupted = false;               //!< a signal came between two microbatches
  bool asks_to_save = false;              //!< somebody asked for a checkpoint, or it is time for one
  bool has_saved = false;                 //!< the checkpoint that was being written has ended

  /// The sum over all tokens of the step: the same whoever computed which microbatch.
  double loss_sum() const;
};

/// Of all ranks, whose microbatches follow each other in the order of ranks.
StepRecord share(Communicator& ranks, const StepRecord& own);

}  // namespace tetrad
