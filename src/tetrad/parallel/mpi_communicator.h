// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks that a launcher of MPI has started, on the program's memory.

#include <cstddef>
#include <memory>
#include <string>

#include "tetrad/ops/communicator.h"

namespace tetrad {

struct MpiOptions {
  std::size_t largest_message = std::size_t{1} << 30;  //!< longer ones are cut: MPI counts with 31 bits
};

/// All ranks of the launch. Starts MPI, once in a process; the last communicator that is left ends it. Throws
/// Error where the build has no MPI, or one that cannot be called from different threads.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& options = {});

/// The library and its version; empty where the build has none.
std::string mpi_version();

}  // namespace tetrad
