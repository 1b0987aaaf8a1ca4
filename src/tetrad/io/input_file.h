// SPDX-License-Identifier: Apache-2.0
#pragma once
// A regular file that is read a piece at a time. Unlike a map, it survives a file that becomes shorter while
// it is in use, or a disk that fails: those are errors of a read, not signals.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "tetrad/io/mapped_file.h"

namespace tetrad {

class InputFile {
 public:
  /// Throws Error (bad input) if the path cannot be opened or is no regular file; never waits on a pipe.
  explicit InputFile(const std::filesystem::path& path);

  std::uint64_t size() const { return size_; }  //!< when it was opened

  /// All of `bytes`, from `offset` on. May be called by several threads at once. Throws Error (failure) if
  /// the file has become shorter or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string name_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace tetrad
