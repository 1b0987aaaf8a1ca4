// SPDX-License-Identifier: Apache-2.0
#pragma once
// One of many ranks that are not there: counts what it would send, touches no memory, and hears its own words
// from everybody. So that a plan for a thousand ranks can be made on a laptop.

#include <array>
#include <memory>
#include <vector>

#include "tetrad/ops/communicator.h"

namespace tetrad {

class CountingCommunicator final : public Communicator {
 public:
  struct Count {
    std::int64_t calls = 0;
    std::int64_t bytes = 0;  //!< that this rank hands to the others; of max_u32, of the array
    friend bool operator==(const Count&, const Count&) = default;
  };
  /// What goes on between some ranks.
  struct Counts {
    std::vector<int> ranks = {};  //!< of the communicator that others were made from; empty: all
    std::array<Count, static_cast<std::size_t>(Collective::barrier) + 1> by_kind = {};

    const Count& of(Collective collective) const { return by_kind[static_cast<std::size_t>(collective)]; }
  };

  /// Throws Error unless there is such a rank.
  CountingCommunicator(int rank, int size);

  const Count& count(Collective collective) const { return counts_.front()->of(collective); }
  /// Also of those that were made with among(), which come behind.
  std::vector<Counts> counts() const;

  std::string_view name() const override { return "counting"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Communicator> among(std::span<const int> ranks) override;

 protected:
  void begin(std::uint64_t number, std::span<const Exchange> exchanges) override;
  void begin(std::uint64_t number, std::span<const Gather> gathers) override;
  void begin(std::uint64_t number, std::span<std::uint32_t> values) override;
  void finish(std::uint64_t /*number*/) override {}
  std::vector<std::string> share_now(const std::string& own) override;
  void broadcast_now(std::span<std::byte> memory, int root) override;
  void barrier_now() override { add(Collective::barrier, 0); }

 private:
  void add(Collective collective, std::size_t bytes);
  std::size_t others() const { return static_cast<std::size_t>(size_) - 1; }

  int rank_;
  int size_;
  std::vector<std::shared_ptr<Counts>> counts_ = {std::make_shared<Counts>()};  //!< the own ones first
};

}  // namespace tetrad
