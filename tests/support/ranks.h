// SPDX-License-Identifier: Apache-2.0
#pragma once
// The built program on several ranks. TETRAD_MPIRUN is defined by the build.

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/process.h"
#include "support/training.h"

namespace tetrad::testing {

inline std::vector<std::string> launcher(int ranks) {
  std::vector<std::string> words = {TETRAD_MPIRUN,     "-n",        std::to_string(ranks),
                                    "--oversubscribe", "--bind-to", "none"};
  if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
  return words;
}

inline Outcome run_ranks(int ranks, const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment = {}) {
  return RunningTetrad(arguments, environment, {}, launcher(ranks)).wait();
}

/// Small runs whose ranks share the work, and which leave the files that one rank leaves.
class TrainingOfRanks : public Training {
 protected:
  using Training::Training;

  /// Four microbatches in four groups; every checkpoint stays.
  Words run_of(const std::string& model, const std::string& recipe, const std::string& out,
               const Words& more = {}) {
    Words words = {"train.microbatch=1", "train.groups=4", "train.checkpoint.keep=9", "run.threads=1"};
    words.insert(words.end(), more.begin(), more.end());
    return arguments(model, recipe, out, words);
  }

  /// Every file of a checkpoint, by its name.
  std::map<std::string, std::string> files(const std::string& run, std::int64_t step = kSteps) {
    std::map<std::string, std::string> contents;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / run / "checkpoints" /
                                                                 ("step-" + std::to_string(step))))
      contents[entry.path().filename().string()] = read_file(entry.path());
    return contents;
  }

  /// Leaves the run as it was after its first checkpoint.
  void rewind(const std::string& run) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / run / "checkpoints"))
      if (entry.path().filename() != "step-0") std::filesystem::remove_all(entry.path());
  }
};

}  // namespace tetrad::testing
