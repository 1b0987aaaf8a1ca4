// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "tetrad/core/error.h"

namespace tetrad {

FileDescriptor::~FileDescriptor() {
  if (is_open()) ::close(fd_);
}

std::pair<FileDescriptor, std::uint64_t> open_regular_file(const std::filesystem::path& path) {
  const std::string& name = path.native();
  // O_NONBLOCK: opening a pipe that nobody writes to must fail below, not hang here.
  FileDescriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.is_open()) {
    const std::string reason = std::generic_category().message(errno);
    fail("cannot read {:?}: {}; check the path and its permissions", name, reason);
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno(fmt::format("cannot examine {:?}", name));
  TETRAD_CHECK(!S_ISDIR(status.st_mode), "cannot read {:?}: it is a folder; name a file inside it", name);
  TETRAD_CHECK(
      S_ISREG(status.st_mode),
      "cannot read {:?}: it is not a regular file (a pipe or a device?); copy the data to a file first",
      name);
  return {std::move(file), static_cast<std::uint64_t>(status.st_size)};
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const auto [file, size] = open_regular_file(path);
  if (size == 0) return;
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) fail_errno(fmt::format("cannot map {:?} into memory", path.native()));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::drop(std::span<const std::byte> bytes) const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(bytes.data()) % page;
  // A page that others are about to read may go too. Advice that is not taken costs memory, nothing else.
  if (!bytes.empty())
    ::madvise(const_cast<std::byte*>(bytes.data() - before), bytes.size() + before, MADV_DONTNEED);
}

}  // namespace tetrad
