// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/counting_communicator.h"

#include "tetrad/core/error.h"
#include "tetrad/parallel/shared.h"

namespace tetrad {

CountingCommunicator::CountingCommunicator(int rank, int size) : rank_(rank), size_(size) {
  TETRAD_CHECK(rank >= 0 && rank < size, "there is no rank {} among {}", rank, size);
}

std::unique_ptr<Communicator> CountingCommunicator::among(std::span<const int> ranks) {
  auto some = std::make_unique<CountingCommunicator>(check_members(ranks, rank_, size_),
                                                     static_cast<int>(ranks.size()));
  some->counts_.front()->ranks.assign(ranks.begin(), ranks.end());
  counts_.push_back(some->counts_.front());
  return some;
}

std::vector<CountingCommunicator::Counts> CountingCommunicator::counts() const {
  std::vector<Counts> all;
  for (const std::shared_ptr<Counts>& counts : counts_) all.push_back(*counts);
  return all;
}

void CountingCommunicator::add(Collective collective, std::size_t bytes) {
  Count& count = counts_.front()->by_kind[static_cast<std::size_t>(collective)];
  ++count.calls;
  count.bytes += static_cast<std::int64_t>(bytes);
}

void CountingCommunicator::begin(std::uint64_t /*number*/, std::span<const Exchange> exchanges) {
  std::size_t bytes = 0;
  for (const Exchange& exchange : exchanges)
    for (std::size_t to = 0; to < exchange.send.size(); ++to)
      if (to != static_cast<std::size_t>(rank_)) bytes += exchange.send[to].size();
  add(Collective::exchange, bytes);
}

void CountingCommunicator::begin(std::uint64_t /*number*/, std::span<const Gather> gathers) {
  std::size_t bytes = 0;
  for (const Gather& gather : gathers) bytes += others() * gather.send.size();
  add(Collective::gather, bytes);
}

void CountingCommunicator::begin(std::uint64_t /*number*/, std::span<std::uint32_t> values) {
  add(Collective::max_u32, values.size_bytes());
}

std::vector<std::string> CountingCommunicator::share_now(const std::string& own) {
  add(Collective::share, others() * own.size());
  return std::vector<std::string>(static_cast<std::size_t>(size_), own);
}

void CountingCommunicator::broadcast_now(std::span<std::byte> memory, int root) {
  add(Collective::broadcast, rank_ == root ? others() * memory.size() : 0);
}

}  // namespace tetrad
