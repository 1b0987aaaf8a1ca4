// SPDX-License-Identifier: Apache-2.0
#pragma once
// GGUF files, written tensor by tensor.

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>

#include "tetrad/interchange/gguf_format.h"
#include "tetrad/io/atomic_file.h"

namespace tetrad {

/// One file, which appears whole or not at all.
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& target, const GgufMetadata& metadata,
             const std::vector<GgufTensor>& tensors);

  /// Each declared tensor once, in any order.
  void write(const std::string& name, std::span<const std::byte> bytes);
  void commit();

  std::uint64_t bytes() const { return end_; }

 private:
  struct Slot {
    std::uint64_t begin;  //!< within the file
    std::uint64_t bytes;
    bool written;
  };

  AtomicFile file_;
  std::map<std::string, Slot, std::less<>> slots_;
  std::uint64_t end_ = 0;
};

}  // namespace tetrad
