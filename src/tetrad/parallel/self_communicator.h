// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank, alone: no library, and nothing to wait for. On the program's memory.

#include "tetrad/ops/communicator.h"

namespace tetrad {

class SelfCommunicator final : public Communicator {
 public:
  std::string_view name() const override { return "self"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Communicator> among(std::span<const int> ranks) override;

 protected:
  void begin(std::uint64_t number, std::span<const Exchange> exchanges) override;
  void begin(std::uint64_t number, std::span<const Gather> gathers) override;
  void begin(std::uint64_t /*number*/, std::span<std::uint32_t> /*values*/) override {}
  void finish(std::uint64_t /*number*/) override {}
  std::vector<std::string> share_now(const std::string& own) override { return {own}; }
  void broadcast_now(std::span<std::byte> /*memory*/, int /*root*/) override {}
  void barrier_now() override {}
};

}  // namespace tetrad
