// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/communicator.h"

#include <cstdio>
#include <cstdlib>

#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad {

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::exchange:
      return "exchange";
    case Collective::gather:
      return "gather";
    case Collective::max_u32:
      return "max_u32";
    case Collective::share:
      return "share";
    case Collective::broadcast:
      return "broadcast";
    case Collective::barrier:
      return "barrier";
  }
  return "";
}

/// While it lives, this rank is in the call.
class Communicator::InCall {
 public:
  InCall(Communicator& communicator, CollectiveCall call, std::string_view point)
      : communicator_(communicator), call_(call) {
    set(call);
    if (const int code = failpoint(point); code != 0) {
      set(std::nullopt);
      throw Error(
          fmt::format("{} {} fails on purpose with errno {}", name_of(call.collective), call.number, code),
          ExitCode::failure);
    }
  }
  /// A new one.
  InCall(Communicator& communicator, Collective collective)
      : InCall(communicator, {collective, ++communicator.last_number_}, "communicator.start") {}
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
  ~InCall() { set(std::nullopt); }

  const CollectiveCall& call() const { return call_; }

 private:
  void set(const std::optional<CollectiveCall>& call) {
    const std::lock_guard lock(communicator_.call_mutex_);
    communicator_.call_ = call;
  }

  Communicator& communicator_;
  CollectiveCall call_;
};

template <typename Operation>
std::uint64_t Communicator::start(Collective collective, const Operation& operation) {
  const InCall now(*this, collective);
  if (listener_ != nullptr && !tells_itself()) listener_->began(now.call());
  begin(now.call().number, operation);
  started_.push_back(now.call());
  return now.call().number;
}

void Communicator::check_lists(std::size_t send, std::size_t receive) const {
  TETRAD_CHECK(send == static_cast<std::size_t>(size()) && receive == static_cast<std::size_t>(size()),
               "a collective of {} ranks sends to {} and receives from {}", size(), send, receive);
}

void Communicator::check_own(std::size_t sent, std::size_t received) const {
  TETRAD_CHECK(sent == received, "rank {} sends itself {} bytes and receives {}", rank(), sent, received);
}

std::uint64_t Communicator::start_exchange(std::span<const Exchange> exchanges) {
  const auto own = static_cast<std::size_t>(rank());
  for (const auto& [send, receive] : exchanges) {
    check_lists(send.size(), receive.size());
    check_own(send[own].size(), receive[own].size());
  }
  return start(Collective::exchange, exchanges);
}

std::uint64_t Communicator::start_gather(std::span<const Gather> gathers) {
  const auto own = static_cast<std::size_t>(rank());
  for (const auto& [send, receive] : gathers) {
    check_lists(receive.size(), receive.size());
    check_own(send.size(), receive[own].size());
  }
  return start(Collective::gather, gathers);
}

std::uint64_t Communicator::start_max_u32(std::span<std::uint32_t> values) {
  return start(Collective::max_u32, values);
}

void Communicator::wait(std::uint64_t number) {
  TETRAD_CHECK(number <= last_number_, "collective {} has not been started", number);
  if (started_.empty() || started_.front().number > number) return;
  const InCall now(*this, started_.front(), "communicator.wait");
  finish(number);
  for (; !started_.empty() && started_.front().number <= number; started_.pop_front())
    if (listener_ != nullptr && !tells_itself()) listener_->ended(started_.front());
}

std::vector<std::string> Communicator::share(const std::string& own) {
  const InCall now(*this, Collective::share);
  return share_now(own);
}

void Communicator::broadcast(std::span<std::byte> memory, int root) {
  TETRAD_CHECK(root >= 0 && root < size(), "there is no rank {} among {}", root, size());
  const InCall now(*this, Collective::broadcast);
  broadcast_now(memory, root);
}

void Communicator::barrier() {
  const InCall now(*this, Collective::barrier);
  barrier_now();
}

std::optional<CollectiveCall> Communicator::pending() {
  const std::lock_guard lock(call_mutex_);
  return call_;
}

void Communicator::abort(const std::string& message) {
  fmt::print(stderr, "tetrad: rank {} ends the run: {}\n", rank(), message);
  std::fflush(stderr);
  end_others();
  std::_Exit(static_cast<int>(ExitCode::failure));  // without destructors, which might wait for others
}

}  // namespace tetrad
