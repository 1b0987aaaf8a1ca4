// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/routes.h"

#include <bit>
#include <numeric>
#include <utility>

#include "tetrad/core/error.h"
#include "tetrad/parallel/mesh.h"

namespace tetrad {

int ranks_per_node(std::span<const std::string> hosts, std::int64_t asked) {
  const auto all = static_cast<int>(hosts.size());
  const auto is_power_of_two = [](std::int64_t count) {
    return std::has_single_bit(static_cast<std::uint64_t>(count));
  };
  if (asked > 0) {
    TETRAD_CHECK(
        asked >= all || (all % asked == 0 && is_power_of_two(asked)),
        "parallel.ranks_per_node is {}, and there are {} ranks: it must be a power of two that divides "
        "their number, so that sums stay those of one rank",
        asked, all);
    return asked >= all ? all : static_cast<int>(asked);
  }
  const int count = place_of(0, hosts).local_size;
  if (all % count != 0 || !is_power_of_two(count)) return all;
  for (int rank = 0; rank < all; ++rank) {  // neighbours, and equally many on each node
    const int first = rank - rank % count;
    if (hosts[static_cast<std::size_t>(rank)] != hosts[static_cast<std::size_t>(first)] ||
        place_of(rank, hosts).local_size != count)
      return all;
  }
  return count;
}

Routes::Routes(Communicator& ranks, int ranks_per_node) : ranks_(ranks), ranks_per_node_(ranks_per_node) {
  const int all = ranks.size();
  if (all == 1) return;
  const int on_node = ranks_per_node;
  const int nodes = all / on_node;
  if (on_node == 1 || nodes == 1) {
    std::vector<int> owners(static_cast<std::size_t>(all));
    std::iota(owners.begin(), owners.end(), 0);
    legs_.push_back({&ranks_, {std::move(owners)}});
    return;
  }
  const Mesh mesh({{"node", nodes}, {"rank", on_node}});
  const auto leg_among = [&](std::string_view axis) {
    some_ranks_.push_back(ranks_.among(mesh.along(axis, ranks_.rank())));
    return Leg{some_ranks_.back().get(), {}};
  };
  Leg within = leg_among("rank");
  for (int node = 0; node < nodes; ++node) within.owners.push_back(mesh.along("rank", node * on_node));
  Leg between = leg_among("node");
  between.owners.push_back(mesh.along("node", ranks_.rank()));
  legs_ = {std::move(within), std::move(between)};
}

std::vector<std::pair<std::string, Communicator*>> Routes::communicators() const {
  std::vector<std::pair<std::string, Communicator*>> all = {{"all ranks", &ranks_}};
  if (some_ranks_.empty()) return all;
  all.emplace_back("ranks of the node", some_ranks_[0].get());
  all.emplace_back("nodes", some_ranks_[1].get());
  return all;
}

std::uint64_t Routes::start_leg(const Leg& leg, const std::vector<PartsOfRanks>& tensors) {
  std::vector<Gather> gathers;
  const auto own = static_cast<std::size_t>(leg.ranks->rank());
  for (const PartsOfRanks& parts : tensors)
    for (const std::vector<int>& owners : leg.owners) {
      Gather& gather = gathers.emplace_back();
      for (const int owner : owners) gather.receive.push_back(parts[static_cast<std::size_t>(owner)]);
      gather.send = gather.receive[own];
    }
  return leg.ranks->start_gather(gathers);
}

std::uint64_t Routes::start_gather(std::vector<PartsOfRanks> tensors) {
  const std::uint64_t begun = legs_.empty() ? 0 : start_leg(legs_.back(), tensors);
  under_way_.push_back({++last_, begun, std::move(tensors)});
  return last_;
}

void Routes::wait(std::uint64_t number) {
  for (; !under_way_.empty() && under_way_.front().number <= number; under_way_.pop_front()) {
    if (legs_.empty()) continue;
    const Gathering& gathering = under_way_.front();
    legs_.back().ranks->wait(gathering.first_leg);
    for (std::size_t leg = legs_.size() - 1; leg-- > 0;)
      legs_[leg].ranks->wait(start_leg(legs_[leg], gathering.tensors));
  }
}

}  // namespace tetrad
