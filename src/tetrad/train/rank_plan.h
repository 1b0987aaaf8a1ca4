// SPDX-License-Identifier: Apache-2.0
#pragma once
// What each of several ranks would send in a step, and needs to do so: counted by running what they run, on a
// device and among ranks that are not there.

#include <cstdint>
#include <vector>

#include "tetrad/ops/communicator.h"
#include "tetrad/train/config.h"
#include "tetrad/train/link_time.h"

namespace tetrad {

/// Of one kind of collective.
struct Traffic {
  Collective collective = Collective::exchange;
  Route route = Route::direct;
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  //!< that a rank hands to others
};

struct RankPlan {
  std::vector<Traffic> per_step;  //!< of the first rank, which has no fewer rows than any
  std::int64_t buffers = 0;       //!< bytes on the device for gradients that come from others
};

/// The part of a step that each of `ranks` makes, as a run of its own. Throws Error (bad input) where they
/// cannot share its groups.
TrainConfig part_of_rank(const Config& config, int ranks);

/// Of so many ranks on each node.
RankPlan plan_ranks(const Config& config, int ranks, int ranks_per_node);

}  // namespace tetrad
