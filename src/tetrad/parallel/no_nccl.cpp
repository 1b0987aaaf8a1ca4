// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/error.h"
#include "tetrad/parallel/nccl_communicator.h"

namespace tetrad {

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> /*host*/,
                                                     Backend& /*backend*/) {
  fail(
      "this build has no NCCL, without which GPUs do not reach each other: install it (libnccl-dev of "
      "NVIDIA's "
      "packages, or set NCCL_ROOT) and build again");
}

std::string nccl_version() { return {}; }

}  // namespace tetrad
