// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/input_file.h"

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad {

InputFile::InputFile(const std::filesystem::path& path) : name_(path.native()) {
  auto [file, size] = open_regular_file(path);
  file_ = std::move(file);
  size_ = size;
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = failpoint_fails("data.read")
                              ? -1
                              : ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_errno(fmt::format("cannot read {:?}; check the health of the disk", name_));
    if (count == 0)
      throw Error(
          fmt::format("{:?} ends before byte {}, but had {} bytes when it was opened: files must not change "
                      "while they are read",
                      name_, offset, size_),
          ExitCode::failure);
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace tetrad
