// SPDX-License-Identifier: Apache-2.0
#pragma once
// One count of the memory that requests take, from the first byte that is read to the last that is sent.
// What would go beyond the limit is refused before it is read or made.

#include <atomic>
#include <cstddef>

namespace tetrad {

/// May be used by several threads at once.
class MemoryBudget {
 public:
  /// `set_aside`: bytes of it that are held from the beginning, for what cannot be refused.
  explicit MemoryBudget(std::size_t limit, std::size_t set_aside = 0)
      : limit_(limit), set_aside_(set_aside), held_(set_aside), peak_(set_aside) {}

  std::size_t limit() const { return limit_; }
  std::size_t held() const { return held_; }
  std::size_t peak() const { return peak_; }  //!< the most that was held so far

 private:
  friend class MemoryShare;
  bool add(std::size_t bytes, bool may_exceed);

  const std::size_t limit_;
  const std::size_t set_aside_;
  std::atomic<std::size_t> held_;
  std::atomic<std::size_t> peak_;
};

/// What one request holds. Used by one thread; gives everything back at its end.
class MemoryShare {
 public:
  explicit MemoryShare(MemoryBudget& budget) : budget_(budget) {}
  MemoryShare(const MemoryShare&) = delete;
  MemoryShare& operator=(const MemoryShare&) = delete;
  ~MemoryShare() { hold_exactly(0); }

  std::size_t bytes() const { return bytes_; }

  /// Holds at least so many bytes from now on. Throws HttpError if the budget has no room for them: 503, or
  /// 413 if it never will.
  void reserve(std::size_t bytes);
  /// So many more.
  void add(std::size_t bytes) { reserve(bytes_ + bytes); }
  /// Holds exactly so many, which exist already and so cannot be refused.
  void hold_exactly(std::size_t bytes);

 private:
  MemoryBudget& budget_;
  std::size_t bytes_ = 0;
};

}  // namespace tetrad
