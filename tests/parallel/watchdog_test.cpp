// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/watchdog.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

namespace tetrad {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

constexpr CollectiveCall kGather{Collective::gather, 7};

TEST(PendingTime, IsThatOfOneCollective) {
  PendingTime pending;
  const PendingTime::Clock::time_point begin = {};
  EXPECT_EQ(pending.look(std::nullopt, begin), 0s);
  EXPECT_EQ(pending.look(kGather, begin + 1s), 0s);
  EXPECT_EQ(pending.look(kGather, begin + 4s), 3s);
  EXPECT_EQ(pending.look(CollectiveCall{Collective::gather, 8}, begin + 5s), 0s);
  EXPECT_EQ(pending.look(std::nullopt, begin + 6s), 0s);
  EXPECT_EQ(pending.look(std::nullopt, begin + 8s), 2s);
  EXPECT_EQ(pending.look(CollectiveCall{Collective::gather, 8}, begin + 9s), 0s);
}

/// What the handler of a watchdog hears; empty if it is not called for a while.
std::string heard(const Watchdog::Look& look, std::chrono::milliseconds time_out,
                  std::chrono::milliseconds patience) {
  std::promise<std::string> said;
  std::future<std::string> message = said.get_future();
  std::atomic<bool> has_begun = false;
  Watchdog watchdog(
      {.rank = 3, .host = "node5", .time_out = time_out}, [&] { return has_begun ? look() : std::nullopt; },
      [&](const std::string& text) { said.set_value(text); });
  watchdog.set_step(40);
  has_begun = true;
  return message.wait_for(patience) == std::future_status::ready ? message.get() : "";
}

TEST(Watchdog, NamesRankHostStepAndCollective) {
  const std::string message = heard([] { return kGather; }, 50ms, 60s);
  EXPECT_EQ(message.find("rank 3 on node5, step 40: gather 7 has not finished after 0."), 0u) << message;
}

TEST(Watchdog, SaysNothingWhileCollectivesCome) {
  std::uint64_t number = 0;
  EXPECT_EQ(heard([&] { return CollectiveCall{Collective::gather, ++number}; }, 20ms, 200ms), "");
  EXPECT_GT(number, 2u);
  EXPECT_EQ(heard([] { return std::nullopt; }, 20ms, 200ms), "");
}

TEST(Watchdog, NamesTheRankThatOthersWaitFor) {
  std::promise<std::string> said;
  const Watchdog watchdog(
      {.rank = 2,
       .host = "node4",
       .time_out = 50ms,
       .tell = [&](const std::string& text) { said.set_value(text); }},  // a second time throws
      [] { return std::nullopt; }, [](const std::string&) { FAIL() << "it does not wait"; });
  const std::string message = said.get_future().get();
  EXPECT_EQ(message.find("rank 2 on node4, step 0: has been at no collective for 0."), 0u) << message;
  std::this_thread::sleep_for(200ms);
}

TEST(Watchdog, PassesOnWhatTheTransportNotices) {
  const std::string message = heard(
      []() -> std::optional<CollectiveCall> { throw std::runtime_error("the link is down"); }, 50ms, 60s);
  EXPECT_EQ(message, "rank 3 on node5, step 40: the link is down");
}

}  // namespace
}  // namespace tetrad
