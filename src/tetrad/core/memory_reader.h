// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reading memory that may be a device's, piece by piece, so that nobody needs a second copy of all of it.

#include <cstddef>
#include <span>

namespace tetrad {

/// For one thread at a time, which need not be the one that computes.
class MemoryReader {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;

  MemoryReader() = default;
  MemoryReader(const MemoryReader&) = delete;
  MemoryReader& operator=(const MemoryReader&) = delete;
  virtual ~MemoryReader() = default;

  /// At most kMostBytes, where the program can read them until the next call: as they lie, or copied. Throws
  /// Error if they cannot be read.
  virtual std::span<const std::byte> read(std::span<const std::byte> memory) = 0;
};

/// Memory of the program itself.
class PlainMemoryReader final : public MemoryReader {
 public:
  std::span<const std::byte> read(std::span<const std::byte> memory) override { return memory; }
};

}  // namespace tetrad
