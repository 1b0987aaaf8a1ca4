// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace tetrad {

PendingTime::Clock::duration PendingTime::look(const std::optional<CollectiveCall>& call,
                                               Clock::time_point now) {
  const std::optional<std::uint64_t> number = call ? std::optional(call->number) : std::nullopt;
  if (!since_ || number != number_) since_ = now;
  number_ = number;
  return now - *since_;
}

Watchdog::Watchdog(WatchdogOptions options, Look look, Handler handler)
    : options_(std::move(options)),
      look_(std::move(look)),
      handler_(std::move(handler)),
      thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

std::string Watchdog::named(const std::string& what) const {
  return fmt::format("rank {} on {}, step {}: {}", options_.rank, options_.host, step_.load(), what);
}

std::optional<std::string> Watchdog::trouble() {
  try {
    const std::optional<CollectiveCall> call = look_();
    const PendingTime::Clock::duration waited = pending_.look(call, PendingTime::Clock::now());
    if (waited < options_.time_out) return std::nullopt;
    const double seconds = std::chrono::duration<double>(waited).count();
    if (call)
      return named(
          fmt::format("{} {} has not finished after {:.1f} s: another rank is gone, or is somewhere else",
                      name_of(call->collective), call->number, seconds));
    if (!std::exchange(has_told_, true))
      options_.tell(named(fmt::format(
          "has been at no collective for {:.1f} s: where others wait, they wait for this rank", seconds)));
    return std::nullopt;
  } catch (const std::exception& error) {
    return named(error.what());
  }
}

void Watchdog::watch() {
  constexpr int kLooks = 10;
  const auto pause = std::clamp<std::chrono::milliseconds>(
      options_.time_out / kLooks, std::chrono::milliseconds(1), std::chrono::seconds(1));
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, pause, [this] { return ends_; })) {
    lock.unlock();
    if (const std::optional<std::string> message = trouble()) {
      handler_(*message);
      return;
    }
    lock.lock();
  }
}

}  // namespace tetrad
