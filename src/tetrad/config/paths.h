// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files that a configuration names: token files, a tokenizer, a checkpoint.

#include "tetrad/config/config.h"

namespace tetrad {

/// A relative path that leads nowhere from the working directory, but does from the folder of the
/// configuration file that names it, becomes that one.
void resolve_paths(Config& config, const Provenance& provenance);

/// Every path as it is from anywhere, for the record of a run.
void make_paths_absolute(Config& config);

}  // namespace tetrad
