// SPDX-License-Identifier: Apache-2.0
#pragma once
// Read-only memory maps of regular files, and the descriptor they are opened with.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

namespace tetrad {

/// Owns a file descriptor; -1 is none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// A regular file for reading, and its size. Throws Error (bad input) if the path cannot be opened or is
/// none; never waits on a pipe.
std::pair<FileDescriptor, std::uint64_t> open_regular_file(const std::filesystem::path& path);

/// The bytes of a regular file. They stay valid when the path is replaced by rename or removed, because the
/// map holds the old file; a program that shortens the file in place still breaks them (the kernel sends
/// SIGBUS), so writers of ours never do that.
class MappedFile {
 public:
  /// Throws Error (bad input) if the path cannot be opened or is no regular file; never waits on a pipe.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

  /// Gives back the memory behind these bytes; whoever looks at them again reads them from the file again.
  void drop(std::span<const std::byte> bytes) const;

 private:
  std::span<const std::byte> bytes_;  //!< Owned; empty for an empty file, which has no map.
};

}  // namespace tetrad
