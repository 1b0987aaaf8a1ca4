// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ways of parts of tensors between ranks: from each straight to each, or, where several ranks are on a
// node, within nodes first and between nodes only what nodes have added up. Sums are in the order of the same
// tree either way (ops/ordered_sum.h), because the ranks of a node are a node of the tree, too.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tetrad/ops/communicator.h"

namespace tetrad {

/// A part of the way of parts to those who add them up, or, backwards, from them.
struct Leg {
  Communicator* ranks = nullptr;  //!< that it is between
  /// Whose parts travel: in one exchange for each list, to each of these ranks those of the rank that stands
  /// in its place.
  std::vector<std::vector<int>> owners;
};

/// How many neighbouring ranks are on a node: `asked`, or, if that is 0, as many as the names of hosts say,
/// one for each rank. All ranks where parts had better go straight, because there is one node, or because
/// sums over those of a node would not be in the order of the tree. Throws Error where so many cannot be
/// asked for.
int ranks_per_node(std::span<const std::string> hosts, std::int64_t asked);

/// A tensor in parts, by rank; each rank has its own.
using PartsOfRanks = std::vector<std::span<std::byte>>;

class Routes {
 public:
  /// All ranks make them at the same time. `ranks` outlives them.
  Routes(Communicator& ranks, int ranks_per_node);

  Communicator& ranks() const { return ranks_; }
  int ranks_per_node() const { return ranks_per_node_; }
  /// All that parts travel over, by name.
  std::vector<std::pair<std::string, Communicator*>> communicators() const;
  /// In the order in which parts go to those who add them up.
  std::span<const Leg> legs() const { return legs_; }

  /// Gathers tensors whose parts lie in place: every rank then has all of them. Returns a number to wait for,
  /// as Communicator::start_gather does.
  std::uint64_t start_gather(std::vector<PartsOfRanks> tensors);
  void wait(std::uint64_t number);

 private:
  struct Gathering {
    std::uint64_t number;
    std::uint64_t first_leg;  //!< the collective's number there
    std::vector<PartsOfRanks> tensors;
  };
  static std::uint64_t start_leg(const Leg& leg, const std::vector<PartsOfRanks>& tensors);

  Communicator& ranks_;
  int ranks_per_node_;
  std::vector<std::unique_ptr<Communicator>> some_ranks_;
  std::vector<Leg> legs_;
  std::deque<Gathering> under_way_;
  std::uint64_t last_ = 0;
};

}  // namespace tetrad
