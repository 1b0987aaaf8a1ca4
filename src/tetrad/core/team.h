// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the threads of a team share while they work on a loop.
//
// On a machine that others use too, a thread loses its core for milliseconds, many times as long as most
// loops. So that the others do not wait for it longer than they must:
//
// - A loop's pieces are handed out one by one, and the loop is over when all of them are done: a thread that
//   holds none, because it woke up late or has no core, is not waited for.
// - Who has nothing to do spins for as long as those it waits for are seen to run, since they will be done
//   before the kernel could wake a sleeping thread, and gives up its core otherwise.
// - Who waits for a thread that has lost its core gives it the core that is about to be idle. The kernel
// would
//   leave it where it is, because it does not move threads that ran a moment ago.
//
// None of this has an influence on what is computed.

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tetrad/core/thread_place.h"

namespace tetrad {

class Team {
 public:
  using Call = void (*)(const void* body, std::int64_t i);

  /// The caller and `workers` threads.
  explicit Team(int workers);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  void run(std::int64_t count, Call call, const void* body);

  /// Whether this team was made in this process, not in the one that it was forked from, whose threads are
  /// not here.
  bool is_of_this_process() const noexcept;

  /// Which thread of the team this is; -1: none that works for it at the moment.
  int worker() const;

 private:
  /// Which loop it is, and the next of its pieces, in one word: a piece can only be taken from the loop that
  /// the taker has seen.
  struct Ticket {
    static constexpr int kPieceBits = 24;
    static constexpr std::uint64_t kClosed = (std::uint64_t{1} << kPieceBits) - 1;  //!< no piece can be taken

    std::uint64_t word;
    static Ticket of(std::uint64_t loop, std::uint64_t piece) { return {loop << kPieceBits | piece}; }
    std::uint64_t piece() const { return word & kClosed; }
  };

  /// One thread of the team, as the others see it; the first is the caller.
  struct alignas(64) Member {
    std::atomic<pid_t> thread = 0;  //!< 0: it has not started yet
    std::atomic<clockid_t> clock = 0;
    std::atomic<bool> works = false;      //!< on a piece, or is about to take one
    std::atomic<bool> sleeps = false;     //!< until a loop begins
    std::atomic<int> core = -1;           //!< where it was last seen
    cpu_set_t cores = {};                 //!< to be restored when it wakes up; written while it sleeps
    std::atomic<bool> displaced = false;  //!< cores is set

    void identify();
    ThreadId id() const { return {thread.load(std::memory_order_relaxed), clock.load()}; }
  };

  void work(int index);
  /// Whether there is a piece to take, as far as this thread knows.
  bool has_pieces() const;
  void take_pieces(Member& self);
  void do_piece(Call call, const void* body, std::int64_t piece);
  void wake_workers(std::int64_t count);
  void wait_for_loop(Member& self);
  void wait_for_pieces_of_others();
  /// The thread that a member which has nothing to do waits for.
  const Member& awaited_by(const Member& self) const;
  /// Returns whether done() became true while the awaited thread ran. If not, that has this thread's core as
  /// soon as this one sleeps.
  template <typename Done>
  bool spin_while_others_run(const Member& self, const Done& done) const;

  // Written by the caller between loops; read by whoever takes a piece. A thread may read them while they are
  // being replaced, and then finds that its ticket is no longer valid.
  std::atomic<Call> call_ = nullptr;
  std::atomic<const void*> body_ = nullptr;
  std::atomic<std::uint64_t> pieces_ = 0;
  std::uint64_t loop_ = 0;

  alignas(64) std::atomic<std::uint64_t> ticket_ = Ticket::kClosed;
  alignas(64) std::atomic<std::uint32_t> unfinished_ = 0;  //!< pieces; the caller sleeps on it
  std::atomic<bool> caller_sleeps_ = false;
  alignas(64) std::atomic<std::uint32_t> bell_ = 0;  //!< workers sleep on it
  std::atomic<int> sleeping_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> in_use_ = false;

  std::atomic<bool> failed_ = false;
  std::mutex error_mutex_;
  std::exception_ptr error_;

  std::uint64_t process_;
  std::vector<Member> members_;
  std::vector<std::thread> workers_;  //!< last: they use all of the above
};

}  // namespace tetrad
