// SPDX-License-Identifier: Apache-2.0
#pragma once
// How ranks, the processes of one run, reach each other. Transports move bytes and take maxima of integers;
// they never add floating-point numbers, whose sum would depend on the transport's order: what is exchanged
// is added by Backend::ordered_sum.
//
// All ranks of a communicator make the same calls in the same order, from one thread at a time.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/ops/messages.h"

namespace tetrad {

/// Every rank sends to every rank, in all by one list of each: `send[r]` here is as long as `receive[s]` on
/// rank r, where s is this rank. Lengths may differ from rank to rank and may be zero. What a rank sends to
/// itself is copied, unless it is where it is received.
struct Exchange {
  std::vector<std::span<const std::byte>> send;  //!< by rank
  std::vector<std::span<std::byte>> receive;     //!< by rank
};

/// Every rank gets what every rank has: `receive[r]` is as long as `send` on rank r, which may be nothing.
/// `receive` of this rank may be `send` itself.
struct Gather {
  std::span<const std::byte> send;
  std::vector<std::span<std::byte>> receive;  //!< by rank
};

enum class Collective : std::uint8_t { exchange, gather, max_u32, share, broadcast, barrier };
std::string_view name_of(Collective collective);

/// A collective by its number, which is the same on all ranks.
struct CollectiveCall {
  Collective collective = Collective::barrier;
  std::uint64_t number = 0;
};

/// Is told of collectives that are started, by any thread.
class CollectiveListener {
 public:
  CollectiveListener() = default;
  CollectiveListener(const CollectiveListener&) = delete;
  CollectiveListener& operator=(const CollectiveListener&) = delete;
  virtual ~CollectiveListener() = default;

  /// Bytes may be on their way.
  virtual void began(const CollectiveCall& call) = 0;
  /// This rank has sent and received all: when a device has, or when the program saw it.
  virtual void ended(const CollectiveCall& call) = 0;
};

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  /// "self", "mpi", "host-staged", "nccl", "counting"
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // On the memory of the backend that this communicator was made for; those of `self` and `mpi` are the
  // program's own memory, as is the CPU's. Starting one does not wait for it: it reads what operations that
  // were put on the backend before leave, and works beside those that follow, until wait(). In between its
  // memory must stay as it is; of what is received, nobody may look at it. Several exchanges or gathers at
  // once cost little more than one.

  /// Starts a collective; returns its number.
  std::uint64_t start_exchange(std::span<const Exchange> exchanges);
  std::uint64_t start_gather(std::span<const Gather> gathers);
  /// Of each element, the largest of all ranks', in place. Magnitudes of floats compare as their bits do, and
  /// NaN is above all of them.
  std::uint64_t start_max_u32(std::span<std::uint32_t> values);
  /// Operations that are put on the backend from now on see the result of this collective and of all that
  /// were started before it.
  void wait(std::uint64_t number);

  void exchange(const Exchange& exchange) { wait(start_exchange({&exchange, 1})); }
  void gather(const Gather& gather) { wait(start_gather({&gather, 1})); }
  void max_u32(std::span<std::uint32_t> values) { wait(start_max_u32(values)); }

  // On the program's memory; done when they return. They do not wait for collectives that were started.

  /// What every rank says, by rank. Lengths may differ.
  std::vector<std::string> share(const std::string& own);
  /// `memory` of rank `root` to all, as many bytes on each.
  void broadcast(std::span<std::byte> memory, int root);
  void barrier();

  /// Ends this process and all others of the run, with a message on stderr that names this rank. For any
  /// thread, at any time.
  [[noreturn]] void abort(const std::string& message);
  /// What abort() does to the other ranks, which may end this one too.
  virtual void end_others() {}

  /// A communicator of some of the ranks, of which this is one, in the order of the list. All of them call
  /// this with the same list; the others need not. So the axes of a mesh and the ranks of a node get theirs.
  virtual std::unique_ptr<Communicator> among(std::span<const int> ranks) = 0;

  /// Who is told of collectives from now on; null: nobody, nor of those that are under way.
  virtual void tell(CollectiveListener* listener) { listener_ = listener; }

  /// A way for messages of all these ranks, who call this together. Null where there is none: the library
  /// cannot be called by several threads at once.
  virtual std::unique_ptr<Messages> messages() { return nullptr; }

  /// The oldest collective that this rank waits in, or that a device works on; none if nothing is under way.
  /// Throws Error where the transport has noticed that it cannot go on. For any thread: a watchdog's.
  virtual std::optional<CollectiveCall> pending();

 protected:
  /// Whether begin() sees to it that the listener is told.
  virtual bool tells_itself() const { return false; }
  CollectiveListener* listener() const { return listener_; }

  // The same, with sizes that were looked at. `number` is that of the collective.
  virtual void begin(std::uint64_t number, std::span<const Exchange> exchanges) = 0;
  virtual void begin(std::uint64_t number, std::span<const Gather> gathers) = 0;
  virtual void begin(std::uint64_t number, std::span<std::uint32_t> values) = 0;
  /// Up to and with `number`.
  virtual void finish(std::uint64_t number) = 0;
  virtual std::vector<std::string> share_now(const std::string& own) = 0;
  virtual void broadcast_now(std::span<std::byte> memory, int root) = 0;
  virtual void barrier_now() = 0;

 private:
  class InCall;

  template <typename Operation>
  std::uint64_t start(Collective collective, const Operation& operation);
  void check_lists(std::size_t send, std::size_t receive) const;
  void check_own(std::size_t sent, std::size_t received) const;

  CollectiveListener* listener_ = nullptr;
  std::uint64_t last_number_ = 0;
  std::deque<CollectiveCall> started_;  //!< and not waited for
  std::mutex call_mutex_;
  std::optional<CollectiveCall> call_;  //!< that this rank is in
};

}  // namespace tetrad
