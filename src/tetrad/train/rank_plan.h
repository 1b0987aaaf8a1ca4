// SPDX-License-Identifier: Apache-2.0
#pragma once
// What each of several ranks would send in a step, and needs to do so: counted by running what they run, on a
// device and among ranks that are not there. A layout says how many there are, and how many on a node.

#include <cstdint>
#include <vector>

#include "tetrad/ops/communicator.h"
#include "tetrad/train/config.h"
#include "tetrad/train/link_time.h"

namespace tetrad {

struct RankLayout {
  RankLayout(int ranks = 1)
      : count(ranks), per_node(ranks) {}  // NOLINT(google-explicit-constructor): all on one
  RankLayout(int ranks, int ranks_per_node) : count(ranks), per_node(ranks_per_node) {}

  int count;
  int per_node;  //!< neighbours
};

/// Of one kind of collective.
struct Traffic {
  Collective collective = Collective::exchange;
  Route route = Route::direct;
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  //!< that a rank hands to others
};

struct RankPlan {
  std::vector<Traffic> per_step;  //!< of the first rank, which has no fewer rows than any
};

/// The part of a step that each of `ranks` makes, as a run of its own. Throws Error (bad input) where they
/// cannot share its groups.
TrainConfig part_of_rank(const Config& config, int ranks);

RankPlan plan_ranks(const Config& config, const RankLayout& layout);

/// Bytes of a device for gradients on their way between ranks.
std::int64_t exchange_memory(const Config& config, const RankLayout& ranks);

}  // namespace tetrad
