// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensors of a run whose ranks share them, for a checkpoint that rank 0 writes: it reads each piece from
// the rank that has it, when it needs it, so that nobody has room for more than a few pieces. The others
// answer on a thread of their own while they train.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "tetrad/core/memory_reader.h"
#include "tetrad/ops/backend.h"
#include "tetrad/ops/messages.h"

namespace tetrad {

/// Ranks have parts of it that follow each other.
struct SharedTensor {
  std::span<const std::byte> own;  //!< this rank's part, in the backend's memory
  std::vector<std::size_t> ends;   //!< of the part of each rank, in bytes of the whole
};

/// All ranks make one for the same tensors. It lasts as long as that of rank 0, until whose end their own
/// parts stay as they are.
class SharedState {
 public:
  struct Place {
    int rank;
    int ranks;
    std::uint64_t number;                //!< another one each time
    std::chrono::milliseconds patience;  //!< with a rank that does not answer
  };

  /// On ranks other than 0, answers from here on.
  SharedState(Backend& backend, Messages& messages, const Place& place, std::vector<SharedTensor> tensors);
  SharedState(const SharedState&) = delete;
  SharedState& operator=(const SharedState&) = delete;
  /// On rank 0, lets the others go; on those, waits for that.
  ~SharedState();

  // Rank 0:

  /// Where its readers find the whole of a tensor; nobody else can look there.
  std::span<const std::byte> whole(std::size_t tensor) const;
  /// One for each thread that reads, of which `thread` counts from 0. This outlives it.
  std::unique_ptr<MemoryReader> make_reader(int thread);

 private:
  class Reader;
  struct Request;
  struct Reply;

  void answer();
  void let_others_go() const;
  std::size_t size_of(std::size_t tensor) const { return tensors_[tensor].ends.back(); }

  Backend& backend_;
  Messages& messages_;
  Place place_;
  std::vector<SharedTensor> tensors_;
  std::vector<std::size_t> ends_;   //!< of each tensor behind the others before it
  std::span<std::byte> addresses_;  //!< of rank 0, for all tensors, without memory
  std::unique_ptr<MemoryReader> own_reader_;
  std::thread thread_;  //!< last: it uses all of the above
};

}  // namespace tetrad
