// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank that dies without a word, or that waits for something else, leaves the others in a collective for
// good. A thread beside each notices, and says where.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tetrad/ops/communicator.h"

namespace tetrad {

/// How long one and the same collective has been pending, or none.
class PendingTime {
 public:
  using Clock = std::chrono::steady_clock;

  /// Is told what is pending at a moment, and says for how long it has been.
  Clock::duration look(const std::optional<CollectiveCall>& call, Clock::time_point now);

 private:
  std::optional<std::uint64_t> number_;  //!< of the collective
  std::optional<Clock::time_point> since_;
};

struct WatchdogOptions {
  int rank = 0;
  std::string host;
  std::chrono::milliseconds time_out = std::chrono::minutes(10);
  /// Is told, once, where this rank has been in no collective for so long: if others wait for it, this is who
  /// they wait for. In the watchdog's thread.
  std::function<void(const std::string& message)> tell = [](const std::string& /*message*/) {};
};

class Watchdog {
 public:
  using Look = std::function<std::optional<CollectiveCall>()>;
  using Handler = std::function<void(const std::string& message)>;

  /// `look` is Communicator::pending, asked ten times within the time-out and at least once a second. Once a
  /// collective has taken longer than that, or `look` throws, `handler` is called, in the watchdog's thread
  /// and once, with a message that names rank, host, step and collective: it should end the run
  /// (Communicator::abort).
  Watchdog(WatchdogOptions options, Look look, Handler handler);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// What the run is at, for the message.
  void set_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }

 private:
  void watch();
  /// What is wrong; nothing if all is well.
  std::optional<std::string> trouble();
  std::string named(const std::string& what) const;

  WatchdogOptions options_;
  Look look_;
  Handler handler_;
  std::atomic<std::int64_t> step_ = 0;
  PendingTime pending_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_told_ = false;
  bool ends_ = false;
  std::thread thread_;  //!< the last member: it uses the others
};

}  // namespace tetrad
