#include "tetrad/interchange/output_folder.h"

#include <sys/stat.h>

#include <cstdio>
#include <system_error>
#include <utility>

#include "tetrad/core/error.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/train/checkpoint_folder.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

void rename_or_fail(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    fail_errno(fmt::format("cannot rename {:?} to {:?}", from.native(), to.native()));
}

}  // namespace

OutputFolder::OutputFolder(fs::path target, Overwrite overwrite,
                           const std::function<bool(const fs::path&)>& is_ours)
    : target_(target.has_filename() ? std::move(target) : target.parent_path()) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(target_, error);
  if (fs::exists(status)) {
    TETRAD_CHECK(fs::is_directory(status), "{:?} is there and is no folder; choose another name",
                 target_.native());
    const bool is_empty = fs::is_empty(target_, error);
    TETRAD_CHECK(!error, "cannot read the folder {:?}: {}", target_.native(), error.message());
    replaces_ = !is_empty;
    TETRAD_CHECK(is_empty || overwrite == Overwrite::yes,
                 "{:?} is not empty; choose another folder, or replace it with --force", target_.native());
    TETRAD_CHECK(is_empty || is_ours(target_),
                 "{:?} is not empty, and not something that this command has written: it is not replaced; "
                 "choose another folder",
                 target_.native());
  }
  create_folder_of(target_);
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
  fs::path old;
  if (replaces_) {
    fs::path prefix = target_;
    old = unused_path(prefix += ".old.");
    rename_or_fail(target_, old);
  }
  rename_or_fail(temporary_, target_);
  temporary_.clear();
  sync_folder(fs::absolute(target_).parent_path());
  std::error_code ignored;
  if (!old.empty()) fs::remove_all(old, ignored);
}

}  // namespace tetrad
