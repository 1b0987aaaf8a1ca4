// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/error.h"
#include "tetrad/parallel/mpi_communicator.h"

namespace tetrad {

std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& /*options*/) {
  fail(
      "this build has no MPI, without which there is one rank only: install it (on Debian and Ubuntu "
      "libopenmpi-dev and openmpi-bin) and build again");
}

std::string mpi_version() { return {}; }

}  // namespace tetrad
