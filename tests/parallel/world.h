// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks of the program that runs the tests: one, or as many as mpirun has started.

#include <memory>
#include <string>
#include <vector>

#include "tetrad/ops/backend.h"
#include "tetrad/ops/communicator.h"

namespace tetrad::testing {

/// Made by main(), once.
Communicator& world();

/// "host" is the world itself, "host-staged" goes by way of it; on a device also "cuda host-staged" and,
/// where there are several ranks, "cuda nccl".
std::vector<std::string> transport_names();

/// A communicator of all ranks, and the backend whose memory it moves.
struct Connected {
  Backend& backend;
  std::unique_ptr<Communicator> communicator;
};
Connected connect(const std::string& transport);

}  // namespace tetrad::testing
