// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs of a known shape.

#include <cmath>
#include <string>

#include "support/files.h"
#include "tetrad/plot/run_metrics.h"

namespace tetrad::testing {

/// Like a small byte model: from 5.5 nats quickly to 3, then slowly towards 1.9, with a ripple.
inline RunMetrics falling_run(const std::string& path, const std::string& recipe, int steps, double excess) {
  RunMetrics run{.path = path, .recipe = recipe, .sources = {}, .train = {}, .evals = {}};
  for (int step = 1; step <= steps; ++step) {
    const double t = step;
    const double loss =
        (1.6 + 2.4 * std::exp(-t / 8) + 1.5 / std::sqrt(1 + t / 12) + 0.05 * std::sin(t * 7.3)) *
        (1 + excess * t / (t + 50));
    run.train.push_back({.step = step, .tokens = 4096 * step, .loss = loss, .tokens_per_s = 1000 + t});
  }
  return run;
}

inline std::string train_line(int step, const std::string& loss) {
  return R"({"kind":"train","step":)" + std::to_string(step) + R"(,"tokens":)" + std::to_string(step * 100) +
         R"(,"loss":)" + loss + R"(,"tokens_per_s":50.0,"grad_norm":null})" + "\n";
}

}  // namespace tetrad::testing
