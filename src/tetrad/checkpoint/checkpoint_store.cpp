// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/checkpoint_store.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "tetrad/checkpoint/checkpoint_files.h"
#include "tetrad/checkpoint/checkpoint_folder.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/io/atomic_file.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLatest = "latest";  // names the newest checkpoint, for people

fs::path step_path(const fs::path& folder, std::int64_t step) {
  return folder / fmt::format("step-{}", step);
}

bool rename_path(const fs::path& from, const fs::path& to) { return ::rename(from.c_str(), to.c_str()) == 0; }

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

std::string errno_message() { return std::generic_category().message(errno); }

/// Removes what no longer bears the name of a checkpoint.
void remove_folder(const fs::path& path, std::vector<std::string>& warnings) {
  std::error_code error(failpoint("checkpoint.remove"), std::generic_category());
  if (!error) fs::remove_all(path, error);
  if (error) warnings.push_back(fmt::format("cannot delete {:?}: {}", path.native(), error.message()));
}

std::string describe(const std::vector<CheckpointProblem>& problems) {
  std::string text;
  for (const CheckpointProblem& problem : problems)
    text += fmt::format("; {:?}: {}", problem.path.native(), problem.what);
  return text;
}

[[noreturn]] void no_checkpoint(const std::string& message) { throw Error(message, ExitCode::no_checkpoint); }

}  // namespace

/// A write() on its way.
struct CheckpointStore::Writing {
  Writing() = default;
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  ~Writing() {
    std::error_code ignored;
    if (!temporary.empty()) fs::remove_all(temporary, ignored);
  }

  fs::path temporary;  //!< Removed unless it was renamed.
  fs::path previous;   //!< The newest checkpoint there was; empty: none.
  WrittenCheckpoint result;
};

[[noreturn]] void CheckpointStore::not_written(const Writing& writing, std::int64_t step,
                                               std::string_view reason) {
  throw Error(fmt::format("the checkpoint of step {} was not written: {}; {}", step, reason,
                          writing.previous.empty() ? "there is no earlier checkpoint"
                                                   : fmt::format("the previous checkpoint {:?} is intact",
                                                                 writing.previous.native())),
              ExitCode::failure);
}

CheckpointStore::CheckpointStore(fs::path folder, std::int64_t keep)
    : folder_(folder.has_filename() ? std::move(folder) : folder.parent_path()), keep_(keep) {
  TETRAD_CHECK(
      keep >= 2,
      "{} checkpoints to keep are too few: with less than 2 a damaged one would be the end of the run; "
      "keep 2 or more",
      keep);
}

void CheckpointStore::lock() {
  if (lock_.is_open()) return;
  const fs::path path = folder_ / ".lock";
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (!file.is_open())
    fail_errno(fmt::format("cannot open {:?}; check its folder and permissions", path.native()));
  exclusive_ = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
  // Any other errno: a file system without locks. The run can do without; only stale folders must then stay.
  TETRAD_CHECK(
      exclusive_ || errno != EWOULDBLOCK,
      "another process is using the checkpoints in {:?}; wait until it ends, or choose another folder",
      folder_.native());
  lock_ = std::move(file);
}

/// A writer that was killed while it replaced a checkpoint may have left step-N only under its other name.
void CheckpointStore::restore_set_aside() {
  for (const CheckpointEntry& entry : scan_checkpoints(folder_)) {
    const fs::path path = step_path(folder_, entry.step);
    if (entry.kind == EntryKind::set_aside && !is_there(path)) rename_path(entry.path, path);
  }
}

std::vector<FoundCheckpoint> CheckpointStore::list() const {
  std::vector<FoundCheckpoint> found;
  for (const CheckpointEntry& entry : scan_checkpoints(folder_))
    if (entry.kind == EntryKind::checkpoint) found.push_back({entry.step, entry.path});
  return found;
}

WrittenCheckpoint CheckpointStore::write(const CheckpointContents& contents, const Stays& stays,
                                         const std::function<void()>& all_read) {
  const auto start = std::chrono::steady_clock::now();
  check_contents(contents);
  Writing writing;
  try {
    std::error_code error;
    if (fs::create_directories(folder_, error) && !sync_folder(folder_.parent_path()))
      error = std::error_code(errno, std::generic_category());
    if (error)
      throw Error(fmt::format("cannot create the folder {:?}: {}", folder_.native(), error.message()));
    lock();
    restore_set_aside();
    for (const FoundCheckpoint& found : list())
      if (writing.previous.empty() && looks_complete(found.path)) writing.previous = found.path;
    remove_stale(writing.result.warnings);
    check_space(contents);
    write_files(writing, contents, all_read);
    publish(writing, contents.step);
  } catch (const Error& error) {
    not_written(writing, contents.step, error.what());
  } catch (const std::bad_alloc&) {
    not_written(writing, contents.step, "memory is short");
  }
  try {
    write_file_atomically(folder_ / kLatest, fmt::format("step-{}\n", contents.step));
  } catch (const Error& error) {
    writing.result.warnings.emplace_back(error.what());
  }
  retire_old(contents.step, stays, writing.result.warnings);
  writing.result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::move(writing.result);
}

/// Before anything is written: a disk that is filled to its last byte fails others too.
void CheckpointStore::check_space(const CheckpointContents& contents) const {
  const std::uintmax_t needed = bytes_of(contents);
  std::error_code error;
  const fs::space_info space = fs::space(folder_, error);
  if (error) return;  // a file system that does not tell
  const std::uintmax_t available = failpoint("checkpoint.space") != 0 ? 0 : space.available;
  if (needed > available)
    throw Error(fmt::format("it needs {:.3f} GB, and the disk of {:?} has {:.3f} GB free",
                            static_cast<double>(needed) / 1e9, folder_.native(),
                            static_cast<double>(available) / 1e9),
                ExitCode::failure);
}

fs::path CheckpointStore::make_temporary(std::int64_t step) {
  fs::path path = unused_path(folder_ / fmt::format("step-{}.tmp.", step));
  if (failpoint_fails("checkpoint.create_folder") || ::mkdir(path.c_str(), 0777) != 0)
    fail_errno(fmt::format("cannot create the folder {:?}", path.native()));
  return path;
}

void CheckpointStore::write_files(Writing& writing, const CheckpointContents& contents,
                                  const std::function<void()>& all_read) {
  const fs::path folder = writing.temporary = make_temporary(contents.step);
  const Manifest manifest = write_checkpoint_files(folder, contents, all_read);
  if (verify_checkpoint(folder, Reread::from_disk) != manifest)
    fail("{} is not what was written", kManifestName);
  writing.result.bytes = checkpoint_bytes(folder);
}

/// From here on the new checkpoint is what a resuming run finds.
void CheckpointStore::publish(Writing& writing, std::int64_t step) {
  const fs::path target = step_path(folder_, step);
  fs::path aside;
  if (is_there(target)) {
    aside = unused_path(folder_ / fmt::format("step-{}.old.", step));
    if (failpoint_fails("checkpoint.set_aside") || !rename_path(target, aside))
      fail_errno(fmt::format("cannot move {:?} out of the way", target.native()));
    if (writing.previous == target) writing.previous = aside;
  }
  if (failpoint_fails("checkpoint.rename") || !rename_path(writing.temporary, target)) {
    const std::string reason = errno_message();
    if (!aside.empty() && rename_path(aside, target) && writing.previous == aside) writing.previous = target;
    fail("cannot rename {:?} to {:?}: {}", writing.temporary.native(), target.native(), reason);
  }
  writing.temporary.clear();
  if (failpoint_fails("checkpoint.after_rename") || !sync_folder(folder_))
    fail_errno(fmt::format("failed to flush the folder {:?}, and a power cut may undo it", folder_.native()));
  writing.result.path = target;
}

/// What dead writers left: only one writer can hold the lock, so that every temporary name is a dead one's.
void CheckpointStore::remove_stale(std::vector<std::string>& warnings) {
  if (!exclusive_) return;
  for (const CheckpointEntry& entry : scan_checkpoints(folder_))
    if (entry.kind == EntryKind::temporary) remove_folder(entry.path, warnings);
  remove_leftovers(folder_, kLatest);
}

/// Checkpoints that are not complete are neither counted nor deleted: newest_good() will put them in
/// quarantine.
void CheckpointStore::retire_old(std::int64_t newest, const Stays& stays,
                                 std::vector<std::string>& warnings) {
  for (const CheckpointEntry& entry : scan_checkpoints(folder_))
    if (entry.kind == EntryKind::set_aside && entry.step <= newest &&
        is_there(step_path(folder_, entry.step)) && lock_for_deleting(entry.path))
      remove_folder(entry.path, warnings);
  std::int64_t kept = 1;
  for (const FoundCheckpoint& found : list()) {
    if (found.step >= newest || !looks_complete(found.path) || ++kept <= keep_) continue;
    if (stays && stays(found.step)) continue;
    const std::optional<FileDescriptor> nobody_reads = lock_for_deleting(found.path);
    if (!nobody_reads) continue;  // the next time, then
    // Without its name first: a kill halfway through leaves rubbish, not half a checkpoint.
    const fs::path rubbish = unused_path(folder_ / fmt::format("step-{}.tmp.", found.step));
    if (failpoint_fails("checkpoint.retire") || !rename_path(found.path, rubbish)) {
      warnings.push_back(fmt::format("cannot delete {:?}: {}", found.path.native(), errno_message()));
      continue;
    }
    remove_folder(rubbish, warnings);
  }
}

std::optional<FoundCheckpoint> CheckpointStore::newest_good(std::vector<CheckpointProblem>& problems,
                                                            std::int64_t limit) {
  if (scan_checkpoints(folder_).empty()) return std::nullopt;
  lock();
  std::vector<std::string> ignored;  // the next write() tries again
  remove_stale(ignored);
  std::vector<CheckpointProblem> bad;
  std::optional<FoundCheckpoint> good;
  while (!good) {
    restore_set_aside();
    const std::vector<FoundCheckpoint> found = list();
    const auto candidate = std::ranges::find_if(found, [&](const FoundCheckpoint& checkpoint) {
      return checkpoint.step <= limit && std::ranges::none_of(bad, [&](const CheckpointProblem& problem) {
               return problem.path == checkpoint.path && problem.moved_to.empty();
             });
    });
    if (candidate == found.end()) break;
    try {
      verify_checkpoint(candidate->path);
      good = *candidate;
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::bad_input)
        throw Error(
            fmt::format("the checkpoint {:?} cannot be verified: {}; it stays where it is: try again, or "
                        "move it away to go on from an older one",
                        candidate->path.native(), error.what()),
            ExitCode::failure);
      CheckpointProblem problem{candidate->path, error.what(), {}};
      fs::path quarantine = candidate->path;
      quarantine = unused_path(quarantine += ".bad.");
      if (rename_path(candidate->path, quarantine)) {
        problem.moved_to = quarantine;
        sync_folder(folder_);
      } else {
        problem.what += fmt::format(" (and it cannot be renamed: {})", errno_message());
      }
      bad.push_back(std::move(problem));
    }
  }
  problems.insert(problems.end(), bad.begin(), bad.end());
  if (good) return good;
  for (const CheckpointEntry& entry : scan_checkpoints(folder_))
    if (entry.kind == EntryKind::other &&
        std::ranges::find(bad, entry.path, &CheckpointProblem::moved_to) == bad.end())
      bad.push_back({entry.path, "was put aside earlier, or is not named step-N", {}});
  if (bad.empty()) return std::nullopt;
  no_checkpoint(
      fmt::format("no checkpoint in {:?} can be used{}; restore one from a copy, or start a new run in "
                  "another folder",
                  folder_.native(), describe(bad)));
}

namespace {

/// Verified while it cannot be deleted; nothing if it is gone.
std::optional<OpenCheckpoint> open_one(const fs::path& path) {
  std::optional<FileDescriptor> lock = lock_for_reading(path);
  if (!lock && !is_there(path / kManifestName) && !is_there(path)) return std::nullopt;
  verify_checkpoint(path);
  return OpenCheckpoint(path, lock ? std::move(*lock) : FileDescriptor());
}

/// The newest good one, as far as one look tells. Those that have disappeared meanwhile are counted in
/// `gone`.
std::optional<OpenCheckpoint> open_newest(const fs::path& folder, std::vector<CheckpointProblem>& bad,
                                          int& gone) {
  for (const CheckpointEntry& entry : scan_checkpoints(folder)) {
    if (entry.kind != EntryKind::checkpoint && entry.kind != EntryKind::set_aside) continue;
    try {
      if (std::optional<OpenCheckpoint> open = open_one(entry.path)) return open;
      ++gone;
    } catch (const Error& error) {
      if (is_there(entry.path))
        bad.push_back({entry.path, error.what(), {}});
      else
        ++gone;
    }
  }
  return std::nullopt;
}

}  // namespace

OpenCheckpoint open_checkpoint(const fs::path& path, std::vector<CheckpointProblem>& problems) {
  fs::path given = path.has_filename() ? path : path.parent_path();  // "RUN/" is RUN
  const auto is_folder = [](const fs::path& p) {
    std::error_code ignored;
    return fs::is_directory(p, ignored);
  };
  if (!is_folder(given))
    no_checkpoint(fmt::format("{:?} is not a folder; name a run, or a checkpoint in it", path.native()));

  const bool is_run = is_folder(given / "checkpoints");
  if (is_there(given / kManifestName) || (!is_run && parse_entry(given).kind == EntryKind::checkpoint)) {
    std::string reason = "it was deleted meanwhile";
    try {
      if (std::optional<OpenCheckpoint> open = open_one(given)) return std::move(*open);
    } catch (const Error& error) {
      reason = error.what();
    }
    no_checkpoint(fmt::format("the checkpoint {:?} cannot be used: {}; choose another one of the same run",
                              path.native(), reason));
  }
  const fs::path folder = is_run ? given / "checkpoints" : given;
  // A run that goes on deletes old checkpoints and writes new ones: then it is looked for again.
  constexpr int kAttempts = 20;
  std::vector<CheckpointProblem> bad;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    bad.clear();
    int gone = 0;
    std::optional<OpenCheckpoint> open = open_newest(folder, bad, gone);
    if (!open && gone > 0) continue;
    problems.insert(problems.end(), bad.begin(), bad.end());
    if (open) return std::move(*open);
    break;
  }
  no_checkpoint(
      fmt::format("there is no checkpoint in {:?} that can be used{}", folder.native(), describe(bad)));
}

}  // namespace tetrad
