// SPDX-License-Identifier: Apache-2.0
#pragma once
// --ranks N and --gpus N: the same command once more, N times, by mpirun. For one machine; clusters have
// launchers of their own.

#include <string>
#include <vector>

#include "command.h"

namespace tetrad::app {

struct RankOptions {
  int ranks = 0;  //!< 0: not given
  int gpus = 0;   //!< 0: not given

  /// 0: neither is given.
  int count() const { return gpus > 0 ? gpus : ranks; }
};

void add_rank_options(CLI::App& command, RankOptions& options);

/// --gpus says which backend; `backend` is what --backend says.
void choose_backend_for(const RankOptions& options, std::string& backend);

/// mpirun takes the place of this process where several ranks are asked for. Throws Error (bad input) where
/// it cannot be started, or where a launcher has started several ranks already.
void start_ranks(const RankOptions& options);

/// This command line without --ranks and --gpus; `words` begins with the program. A backend that --gpus
/// stands for is said in its place.
std::vector<std::string> words_of_rank(const std::vector<std::string>& words);

}  // namespace tetrad::app
