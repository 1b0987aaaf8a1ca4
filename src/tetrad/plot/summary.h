// SPDX-License-Identifier: Apache-2.0
#pragma once
// What came out of some runs, in figures, beside the first of them.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tetrad/plot/run_metrics.h"

namespace tetrad {

/// How far a run is from the first: the relative difference of the held-out loss at the last evaluation that
/// both have, averaged over the sources that both have; of the final train loss if there is none.
struct Gap {
  double percent = 0;
  bool heldout = false;
  std::int64_t tokens = 0;  //!< at which the losses were compared
};

struct RunSummary {
  std::string path;
  std::string recipe;
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  double train_loss = 0;                   //!< mean over the last 5 % of the steps; NaN if none was finite
  std::map<std::string, EvalPoint> evals;  //!< the last evaluation of each source
  std::optional<Gap> gap;                  //!< nothing if it cannot be told; 0 % for the first run
  std::optional<double> tokens_per_s;      //!< median
  std::optional<double> speed;             //!< tokens_per_s in terms of the first run's
};

std::vector<RunSummary> summarize(std::span<const RunMetrics> runs);

/// A table and what is to be said about it. `ascii` writes nothing else.
std::string summary_table(std::span<const RunSummary> runs, const References& references, bool ascii);

/// The same as one JSON object.
std::string to_json_text(std::span<const RunSummary> runs, const References& references);

/// The result in one line, for a subtitle: "nvfp4: held-out loss +0.63 % against bf16".
std::string headline(std::span<const RunSummary> runs);

}  // namespace tetrad
