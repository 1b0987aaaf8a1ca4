// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <limits>

#include "tetrad/core/error.h"
#include "tetrad/core/float_environment.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tetrad {
namespace {

/// The team that this thread works for at the moment, and its place there.
thread_local const Team* current_team = nullptr;
thread_local int current_worker = 0;

class Membership {
 public:
  Membership(const Team& team, int worker) : team_(current_team), worker_(current_worker) {
    current_team = &team;
    current_worker = worker;
  }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership() {
    current_team = team_;
    current_worker = worker_;
  }

 private:
  const Team* team_;
  int worker_;
};

/// How many forks lie between the process that the program began as and this one.
std::atomic<std::uint64_t> forks = 0;

std::uint64_t this_process() noexcept { return forks.load(std::memory_order_relaxed); }

/// this_process(), from now on counted.
std::uint64_t watch_this_process() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  TETRAD_CHECK(registered == 0, "pthread_atfork: out of memory");
  return this_process();
}

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

using Clock = std::chrono::steady_clock;

/// Between two looks at what has become of the others.
constexpr auto kGlance = std::chrono::microseconds(20);
/// Spinning for longer than it takes to wake a thread that sleeps, some times over, saves nothing.
constexpr auto kLongestSpin = std::chrono::microseconds(400);
/// How long a thread sleeps before it looks again whether the one that it waits for has lost its core.
constexpr auto kNap = std::chrono::milliseconds(1);

/// Returns whether `done()` became true within `time`.
template <typename Done>
bool spin(std::chrono::nanoseconds time, const Done& done) {
  const auto end = Clock::now() + time;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      pause_briefly();
    }
  } while (Clock::now() < end);
  return done();
}

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

/// Sleeps until woken, unless `word` has another value than expected.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t expected, const timespec* longest = nullptr) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, longest, nullptr, 0);
}

void nap_on(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  const timespec time = {0, std::chrono::nanoseconds(kNap).count()};
  sleep_on(word, expected, &time);
}

void wake(std::atomic<std::uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

}  // namespace

Team::Team(int workers) : process_(watch_this_process()), members_(static_cast<std::size_t>(workers) + 1) {
  for (int i = 1; i <= workers; ++i) workers_.emplace_back([this, i] { work(i); });
}

Team::~Team() {
  stop_.store(true);
  bell_.fetch_add(1);
  wake(bell_, std::numeric_limits<int>::max());
  for (std::thread& worker : workers_) worker.join();
}

bool Team::is_of_this_process() const noexcept { return process_ == this_process(); }

int Team::worker() const { return current_team == this ? current_worker : -1; }

void Team::Member::identify() {
  const ThreadId id = ThreadId::of_this_thread();
  clock.store(id.clock);
  thread.store(id.thread);
}

void Team::run(std::int64_t count, Call call, const void* body) {
  TETRAD_CHECK(!in_use_.exchange(true, std::memory_order_acquire), "two threads use one team at once");
  const Membership membership(*this, 0);
  Member& self = members_[0];
  self.identify();
  error_ = nullptr;
  failed_.store(false, std::memory_order_relaxed);
  ++loop_;
  ticket_.store(Ticket::of(loop_, Ticket::kClosed).word);
  call_.store(call, std::memory_order_release);
  body_.store(body, std::memory_order_release);
  pieces_.store(static_cast<std::uint64_t>(count), std::memory_order_release);
  unfinished_.store(static_cast<std::uint32_t>(count), std::memory_order_relaxed);
  ticket_.store(Ticket::of(loop_, 0).word);
  if (sleeping_.load() > 0) wake_workers(count - 1);
  take_pieces(self);
  wait_for_pieces_of_others();
  const std::exception_ptr error = std::exchange(error_, nullptr);
  in_use_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

void Team::wake_workers(std::int64_t count) {
  // The kernel tends to wake a thread where it fell asleep. If that is here, it would take turns with this
  // one.
  const int core = this_core();
  for (Member& member : members_)
    if (member.sleeps.load() && member.core.load() == core && !member.displaced.load()) {
      member.cores = keep_away(member.id(), core);
      member.displaced.store(CPU_COUNT(&member.cores) > 0);
    }
  bell_.fetch_add(1);
  wake(bell_, static_cast<int>(count));
}

void Team::take_pieces(Member& self) {
  self.works.store(true);
  Ticket ticket{ticket_.load()};
  while (true) {
    const Call call = call_.load(std::memory_order_acquire);
    const void* body = body_.load(std::memory_order_acquire);
    if (ticket.piece() >= pieces_.load(std::memory_order_acquire)) break;
    // If this succeeds, the ticket is what it was before call and body were read: they belong to its loop.
    if (!ticket_.compare_exchange_weak(ticket.word, ticket.word + 1)) continue;
    self.core.store(this_core(), std::memory_order_relaxed);
    do_piece(call, body, static_cast<std::int64_t>(ticket.piece()));
    if (unfinished_.fetch_sub(1) == 1 && caller_sleeps_.load()) wake(unfinished_, 1);
    ticket.word = ticket_.load();
  }
  self.works.store(false);
}

void Team::do_piece(Call call, const void* body, std::int64_t piece) {
  if (failed_.load(std::memory_order_relaxed)) return;
  try {
    call(body, piece);
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
    failed_.store(true, std::memory_order_relaxed);
  }
}

bool Team::has_pieces() const {
  return Ticket{ticket_.load()}.piece() < pieces_.load(std::memory_order_acquire);
}

void Team::work(int index) {
  const Membership membership(*this, index);
  const FloatEnvironment environment;
  Member& self = members_[static_cast<std::size_t>(index)];
  self.identify();
  while (!stop_.load()) {
    take_pieces(self);
    wait_for_loop(self);
  }
}

const Team::Member& Team::awaited_by(const Member& self) const {
  for (const Member& member : members_)
    if (&member != &self && member.works.load(std::memory_order_relaxed)) return member;
  return members_[0];
}

template <typename Done>
bool Team::spin_while_others_run(const Member& self, const Done& done) const {
  if (spin(kGlance, done)) return true;
  const auto begin = Clock::now();
  while (Clock::now() - begin < kLongestSpin) {
    const Member& awaited = awaited_by(self);
    if (awaited.thread.load() == 0 || &awaited == &self) return spin(kGlance, done);
    const int core = this_core();
    if (awaited.core.load(std::memory_order_relaxed) == core) return done();  // this one is in its way
    const ThreadId id = awaited.id();
    const auto before = id.time();
    if (spin(kGlance, done)) return true;
    const bool is_running = id.time() - before >= kGlance / 4;
    if (is_running) continue;
    move_thread(id, core);
    return done();
  }
  return done();
}

void Team::wait_for_loop(Member& self) {
  const auto is_over = [&] { return has_pieces() || stop_.load(std::memory_order_relaxed); };
  if (spin_while_others_run(self, is_over)) return;
  const std::uint32_t rung = bell_.load();
  self.core.store(this_core());
  self.sleeps.store(true);
  sleeping_.fetch_add(1);
  if (!is_over()) {
    if (unfinished_.load() > 0)
      nap_on(bell_, rung);
    else
      sleep_on(bell_, rung);
  }
  sleeping_.fetch_sub(1);
  self.sleeps.store(false);
  if (self.displaced.load()) {
    allow_cores(self.id(), self.cores);
    self.displaced.store(false);
  }
}

void Team::wait_for_pieces_of_others() {
  const auto is_over = [&] { return unfinished_.load() == 0; };
  if (is_over()) return;
  while (!spin_while_others_run(members_[0], is_over)) {
    caller_sleeps_.store(true);
    if (const std::uint32_t left = unfinished_.load(); left != 0) nap_on(unfinished_, left);
    caller_sleeps_.store(false);
  }
}

}  // namespace tetrad
