// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory of a device by way of the program's: brought down, moved by another communicator, brought up again.
// For tests, and for one rank, which has nothing to move.

#include "tetrad/ops/backend.h"
#include "tetrad/ops/communicator.h"

namespace tetrad {

/// `host` works on the program's memory; `backend` outlives the result.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host, Backend& backend);

}  // namespace tetrad
