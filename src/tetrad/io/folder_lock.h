// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "tetrad/io/mapped_file.h"

namespace tetrad {

/// Holds a folder for this process until it is destroyed. Throws Error (bad input) if another process does;
/// where the file system knows no locks, nobody is refused.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);

 private:
  FileDescriptor folder_;
};

}  // namespace tetrad
