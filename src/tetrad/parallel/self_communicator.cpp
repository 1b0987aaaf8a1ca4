// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/self_communicator.h"

#include "tetrad/parallel/shared.h"

namespace tetrad {

std::unique_ptr<Communicator> SelfCommunicator::among(std::span<const int> ranks) {
  check_members(ranks, rank(), size());
  return std::make_unique<SelfCommunicator>();
}

void SelfCommunicator::begin(std::uint64_t /*number*/, std::span<const Exchange> exchanges) {
  for (const Exchange& exchange : exchanges) copy_unless_same(exchange.send[0], exchange.receive[0]);
}

void SelfCommunicator::begin(std::uint64_t /*number*/, std::span<const Gather> gathers) {
  for (const Gather& gather : gathers) copy_unless_same(gather.send, gather.receive[0]);
}

}  // namespace tetrad
