// SPDX-License-Identifier: Apache-2.0
#pragma once
// A command on all ranks of a launch: who is there, on what they compute, and how they end together.

#include <functional>
#include <memory>

#include "tetrad/core/error.h"
#include "tetrad/ops/backend.h"
#include "tetrad/ops/communicator.h"
#include "tetrad/parallel/watchdog.h"
#include "tetrad/train/config.h"

namespace tetrad::app {

struct World {
  std::unique_ptr<Backend> backend;  //!< ends after what moves its memory
  std::unique_ptr<Communicator> ranks;
  std::unique_ptr<Watchdog>
      watch;  //!< until there is a backend; what may take long is for the command to watch

  bool is_first() const { return ranks->rank() == 0; }
};

/// Runs `work` on each rank; alone, where no launcher has started this process. Only the first rank is heard.
/// An error that all have ends all; any other one, also a rank that goes, ends the run everywhere.
ExitCode on_all_ranks(const std::function<ExitCode(World&)>& work);

/// Gives each rank its GPU, or its share of the processors; from then on `ranks` are on the memory of that.
/// `how` is the first rank's.
void open_backend(World& world, const RunConfig& how);

}  // namespace tetrad::app
