// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "tetrad/core/error.h"

namespace tetrad {

FolderLock::FolderLock(const std::filesystem::path& folder)
    : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!folder_.is_open()) fail_errno("cannot open " + folder.string(), ExitCode::bad_input);
  // Any other errno: a file system without locks, which a run can do without.
  TETRAD_CHECK(::flock(folder_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK,
               "another process is using {}: wait until it ends, or choose another folder", folder.string());
}

}  // namespace tetrad
