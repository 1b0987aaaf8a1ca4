// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checkpoint with the data of its run: everything that an inspection needs, opened and checked.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "tetrad/core/display.h"
#include "tetrad/inspect/probes.h"
#include "tetrad/model/decoder.h"
#include "tetrad/train/config.h"

namespace tetrad {

struct InspectedRun {
  std::filesystem::path checkpoint;
  Config config;            //!< with the precision that was asked for
  bool as_trained = false;  //!< that is the run's own
  std::int64_t step = 0;
  std::int64_t steps = 0;
  std::unique_ptr<Decoder> decoder;
  ProbeData data;

  /// Where in the run it is.
  Pass pass() const;
};

/// `path` is a checkpoint or a run, `precision` "trained" or a recipe, `batches` the number of microbatches:
/// those that the run would be trained on next, and as many of held-out tokens where there are enough. They
/// have as many sequences as the run's own, or fewer, so as to have at most `tokens` tokens. Throws Error:
/// no_checkpoint if it is damaged, bad input if its data is not there.
InspectedRun open_inspected(const std::filesystem::path& path, const std::string& precision,
                            std::int64_t batches, std::int64_t tokens, Backend& backend,
                            Display* display = nullptr);

}  // namespace tetrad
