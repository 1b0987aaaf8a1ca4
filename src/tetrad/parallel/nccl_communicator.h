// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory of CUDA devices over NCCL. Collectives run on a stream of their own, beside the backend's: they wait
// for what the backend was given before they were started, and the backend waits for them in wait().

#include <memory>
#include <string>

#include "tetrad/ops/backend.h"
#include "tetrad/ops/communicator.h"

namespace tetrad {

/// `host` tells the ranks how to find each other and has the operations on the program's memory; `backend`, a
/// CUDA device, outlives the result. Throws Error where the build has no NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, Backend& backend);

/// Empty where the build has none.
std::string nccl_version();

}  // namespace tetrad
