// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/piece_hashes.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

namespace tetrad {

std::uint64_t piece_count(std::uint64_t bytes, std::uint64_t piece_bytes) {
  if (piece_bytes == 0) return 1;
  return bytes / piece_bytes + (bytes % piece_bytes == 0 ? 0 : 1);
}

std::vector<std::string> hash_pieces(
    std::uint64_t bytes, std::uint64_t piece_bytes,
    const std::function<void(const FilePiece&, std::size_t, Sha256&)>& visit) {
  const std::uint64_t count = piece_count(bytes, piece_bytes);
  std::vector<std::string> hashes(count);
  std::atomic<std::uint64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;  // the first
  const auto work = [&](std::size_t thread) {
    try {
      for (std::uint64_t i = next++; i < count; i = next++) {
        const std::uint64_t begin = i * piece_bytes;
        Sha256 hash;
        visit({begin, piece_bytes == 0 ? bytes : std::min(bytes, begin + piece_bytes)}, thread, hash);
        hashes[i] = hash.hex();
      }
    } catch (...) {
      next = count;  // nobody begins another piece
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    const auto start = [&](std::size_t thread) {
      try {
        others.emplace_back(work, thread);
        return true;
      } catch (const std::system_error&) {
        return false;  // a machine that gives no more threads: fewer do it too
      }
    };
    const std::uint64_t threads = std::min<std::uint64_t>(kHashThreads, count);
    for (std::size_t thread = 1; thread < threads && start(thread); ++thread) continue;
    work(0);
  }
  if (failure) std::rethrow_exception(failure);
  return hashes;
}

}  // namespace tetrad
