// SPDX-License-Identifier: Apache-2.0
// What a single process can know of many ranks: how it was launched, and what a plan for more would send.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <thread>

#include "support/cpu.h"
#include "support/errors.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/parallel/counting_communicator.h"
#include "tetrad/parallel/launch.h"
#include "tetrad/parallel/mpi_communicator.h"
#include "tetrad/parallel/self_communicator.h"

namespace tetrad::testing::one_rank_test {
namespace {

using Environment = std::map<std::string, std::string>;

std::optional<Launched> launched_in(const Environment& environment) {
  return launched_by([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launch, IsReadFromTheEnvironment) {
  EXPECT_FALSE(launched_in({}));
  EXPECT_FALSE(launched_in({{"SLURM_NTASKS", "8"}}));  // an allocation in which nothing was launched
  EXPECT_EQ(launched_in({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "0"}})->ranks, 4);
  EXPECT_EQ(launched_in({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}})->ranks, 2);
  const Environment slurm = {{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "3"}};
  EXPECT_EQ(launched_in(slurm)->ranks, 8);
  EXPECT_EQ(launched_in(slurm)->variable, "SLURM_NTASKS");
  Environment nested = slurm;  // mpirun in a job of Slurm
  nested.insert({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}});
  EXPECT_EQ(launched_in(nested)->ranks, 1);
  EXPECT_THROW(launched_in({{"PMI_SIZE", "many"}, {"PMI_RANK", "0"}}), Error);
  EXPECT_THROW(launched_in({{"PMI_SIZE", "0"}, {"PMI_RANK", "0"}}), Error);
}

TEST(Launch, RefusesRanksThatDoNotSeeEachOther) {
  const Launched four{4, "SLURM_NTASKS"};
  refuse_singleton(std::nullopt, 1);
  refuse_singleton(Launched{1, "PMI_SIZE"}, 1);
  refuse_singleton(four, 4);
  expect_bad_input([&] { refuse_singleton(four, 1); },
                   {"SLURM_NTASKS=4", mpi_version().empty() ? "build again" : "srun --mpi=pmix"});
}

TEST(Launch, OnTheCpuTheWorldItselfIsEnough) {
  auto world = std::make_unique<SelfCommunicator>();
  const Communicator* const before = world.get();
  EXPECT_EQ(make_communicator(std::move(world), cpu_backend()).get(), before);
  refuse_shared_devices(*std::make_unique<SelfCommunicator>(), "");
}

TEST(Launch, RefusesOneDeviceForTwoRanks) {
  CountingCommunicator pair(0, 2);  // hears its own words from both
  expect_bad_input([&] { refuse_shared_devices(pair, "GPU 0000:01:00.0"); },
                   {"ranks 0 and 1", "GPU 0000:01:00.0", host_name()});
  refuse_shared_devices(pair, "");
}

TEST(Counting, CountsWhatIsSentAndTouchesNoMemory) {
  CountingCommunicator ranks(1, 4);
  const auto nowhere = [](std::size_t bytes) {
    return std::span<std::byte>(static_cast<std::byte*>(nullptr), bytes);
  };
  Exchange exchange;
  for (const std::size_t bytes : {10U, 20U, 30U, 40U}) {
    exchange.send.emplace_back(nowhere(bytes));
    exchange.receive.push_back(nowhere(20));
  }
  ranks.exchange(exchange);
  const Gather gather{nowhere(7), {nowhere(1), nowhere(7), nowhere(2), nowhere(3)}};
  const std::vector<Gather> twice = {gather, gather};
  ranks.wait(ranks.start_gather(twice));
  ranks.max_u32({static_cast<std::uint32_t*>(nullptr), 100});
  EXPECT_EQ(ranks.share("abc"), std::vector<std::string>(4, "abc"));
  ranks.broadcast(nowhere(1000), 0);
  ranks.broadcast(nowhere(1000), 1);
  ranks.barrier();
  using Count = CountingCommunicator::Count;
  EXPECT_EQ(ranks.count(Collective::exchange), (Count{1, 80}));
  EXPECT_EQ(ranks.count(Collective::gather), (Count{1, 42}));
  EXPECT_EQ(ranks.count(Collective::max_u32), (Count{1, 400}));
  EXPECT_EQ(ranks.count(Collective::share), (Count{1, 9}));
  EXPECT_EQ(ranks.count(Collective::broadcast), (Count{2, 3000}));
  EXPECT_EQ(ranks.count(Collective::barrier), (Count{1, 0}));
  const auto some = ranks.among(std::vector<int>{3, 1});
  EXPECT_EQ(some->rank(), 1);
  some->barrier();
  ASSERT_EQ(ranks.counts().size(), 2U);
  EXPECT_EQ(ranks.counts()[1].ranks, (std::vector<int>{3, 1}));
  EXPECT_EQ(ranks.counts()[1].of(Collective::barrier), (Count{1, 0}));
  EXPECT_EQ(ranks.counts()[0].of(Collective::exchange), (Count{1, 80}));
  EXPECT_THROW(CountingCommunicator(4, 4), Error);
}

TEST(Pending, IsTheCallThatThisRankIsIn) {
  SelfCommunicator self;
  self.barrier();
  EXPECT_FALSE(self.pending());
  set_failpoints("communicator.start=slow");
  std::optional<CollectiveCall> seen;
  std::atomic<bool> is_seen = false;
  std::thread watch([&] {
    while (!seen) seen = self.pending();
    is_seen = true;
  });
  while (!is_seen) self.share("");
  set_failpoints("");
  watch.join();
  EXPECT_EQ(seen->collective, Collective::share);
  EXPECT_GT(seen->number, 1u);
  EXPECT_FALSE(self.pending());
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Faults, AreThrownWithTheNameOfTheCollective) {
  SelfCommunicator self;
  self.barrier();
  set_failpoints("communicator.start=eio");
  EXPECT_EQ(error_of([&] { self.barrier(); }), "barrier 2 fails on purpose with errno 5");
  set_failpoints("communicator.wait=eio");
  std::uint32_t value = 0;
  EXPECT_EQ(error_of([&] { self.max_u32({&value, 1}); }), "max_u32 3 fails on purpose with errno 5");
  set_failpoints("");
  EXPECT_FALSE(self.pending());
}

}  // namespace
}  // namespace tetrad::testing::one_rank_test
