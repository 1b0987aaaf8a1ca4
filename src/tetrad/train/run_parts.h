// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a run is put together from, as its configuration says: for training it, and for foretelling what
// it needs.

#include <memory>

#include "tetrad/data/dataset.h"
#include "tetrad/model/estimate.h"
#include "tetrad/model/weight_shards.h"
#include "tetrad/optim/gradient_sum.h"
#include "tetrad/parallel/routes.h"
#include "tetrad/train/config.h"
#include "tetrad/train/rank_plan.h"

namespace tetrad {

/// Which groups of a step each of `ranks` has. Throws Error (bad input) where they cannot share them.
GroupDeal deal_groups(const Config& config, int ranks);

/// Where ranks share weights; null: each has all of them. Throws Error (bad input) where there are too many.
std::unique_ptr<WeightShards> make_shards(const Config& config, Backend& backend, Routes& routes);

/// How gradients leave a rank.
DType gradient_wire(const Config& config);

/// What decides about the memory of one of the ranks of a run, besides its plan (memory_plan.h).
MemoryCase memory_case(const Config& config, const RankLayout& ranks);

/// The data of a run, checked: opening it reads every token once.
Dataset open_dataset(Threads& threads, const Config& config);

}  // namespace tetrad
