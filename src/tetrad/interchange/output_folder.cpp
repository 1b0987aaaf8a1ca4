// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>
#include <system_error>

#include "tetrad/core/error.h"
#include "tetrad/io/atomic_file.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

bool holds_anything(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder, ignored) && !fs::is_empty(folder, ignored);
}

}  // namespace

void OutputFolder::check(const fs::path& target, Overwrite overwrite, const IsOurs& is_ours) {
  const fs::path path = without_slash(target);
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::exists(status)) return;
  TETRAD_CHECK(fs::is_directory(status), "{:?} is there and is no folder; choose another name",
               path.native());
  const bool is_empty = fs::is_empty(path, error);
  TETRAD_CHECK(!error, "cannot read the folder {:?}: {}", path.native(), error.message());
  TETRAD_CHECK(is_empty || overwrite == Overwrite::yes,
               "{:?} is not empty; choose another folder, or replace it (--force, overwrite)", path.native());
  TETRAD_CHECK(is_empty || is_ours(path),
               "{:?} is not empty, and not something that this command has written: it is not replaced; "
               "choose another folder",
               path.native());
}

OutputFolder::OutputFolder(const fs::path& target, Overwrite overwrite, const IsOurs& is_ours)
    : target_(without_slash(target)) {
  check(target_, overwrite, is_ours);
  folders_.emplace(target_);
  fs::path prefix = target_;
  prefix += ".tmp.";
  const fs::path path = unused_path(prefix);
  if (::mkdir(path.c_str(), 0777) != 0)
    fail_errno(fmt::format("cannot create the folder {:?}", path.native()), ExitCode::bad_input);
  temporary_ = path;
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void OutputFolder::commit() {
  if (!sync_folder(temporary_)) fail_errno(fmt::format("cannot make {:?} durable", temporary_.native()));
  // What is replaced changes places with the new one, so that there is no moment without either.
  const bool replaces = holds_anything(target_);
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), replaces ? RENAME_EXCHANGE : 0) !=
      0)
    fail_errno(fmt::format("cannot rename {:?} to {:?}", temporary_.native(), target_.native()));
  sync_folder(fs::absolute(target_).parent_path());
  if (!replaces) temporary_.clear();
}

}  // namespace tetrad
