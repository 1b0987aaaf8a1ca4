// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checkpoints on the disk: RUN/checkpoints/step-N/, each with a MANIFEST.json that proves it whole.
//
// Whenever the program is killed, the machine loses power or the disk is full, at least the last checkpoint
// that write() returned from is there, and no damaged one is ever taken for good.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tetrad/checkpoint/checkpoint_contents.h"
#include "tetrad/io/mapped_file.h"

namespace tetrad {

struct WrittenCheckpoint {
  std::filesystem::path path;
  std::uint64_t bytes = 0;  //!< size of all its files
  double seconds = 0;
  /// What went wrong after the checkpoint was safe, such as an old one that cannot be deleted. For the log.
  std::vector<std::string> warnings;
};

struct FoundCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
};

/// A checkpoint that was there but cannot be used.
struct CheckpointProblem {
  std::filesystem::path path;      //!< where it was
  std::string what;                //!< what is wrong with it
  std::filesystem::path moved_to;  //!< its place in quarantine; empty if it was not moved
};

/// The checkpoints of the one run that writes to `folder`. The first write() or newest_good() takes a lock on
/// it, which other processes (and other stores in this one) are refused until this store or its process ends.
/// For one thread at a time.
class CheckpointStore {
 public:
  /// Whether the checkpoint of a step stays, however old it is.
  using Stays = std::function<bool(std::int64_t step)>;

  /// `folder`: RUN/checkpoints; made by the first write(). `keep` ≥ 2.
  CheckpointStore(std::filesystem::path folder, std::int64_t keep);

  /// When it returns, the checkpoint is on the disk, was read back and found right; then only the `keep`
  /// newest up to this step remain, those that `stays` says, and those that somebody reads. A checkpoint of
  /// the same step is replaced, and remains until the new one is safe. Throws Error (failure) if anything
  /// failed, the disk is full for example: the message names the previous checkpoint, which is intact, and
  /// the run may go on and try again later. Where the disk has no room for it, nothing is written. Calls
  /// all_read(), if any, as soon as the tensors may change.
  WrittenCheckpoint write(const CheckpointContents& contents, const Stays& stays = {},
                          const std::function<void()>& all_read = {});

  /// The newest checkpoint up to step `limit` whose files all have their right size and hash. Bad ones on the
  /// way to it are moved to `step-N.bad.<unique>`, never deleted, and added to `problems`. Nothing only if
  /// this run has never finished a checkpoint; if there are some but none is good, now or in quarantine,
  /// throws Error (no_checkpoint) that says what is wrong with each. One that cannot be read, because of a
  /// disk that fails or of permissions, may be good: Error (failure), and it stays where it is. `latest` is
  /// for people and is not read.
  std::optional<FoundCheckpoint> newest_good(std::vector<CheckpointProblem>& problems,
                                             std::int64_t limit = std::numeric_limits<std::int64_t>::max());

  /// The newest first, not verified.
  std::vector<FoundCheckpoint> list() const;

 private:
  struct Writing;

  [[noreturn]] static void not_written(const Writing& writing, std::int64_t step, std::string_view reason);
  void lock();
  void restore_set_aside();
  std::filesystem::path make_temporary(std::int64_t step);
  void write_files(Writing& writing, const CheckpointContents& contents,
                   const std::function<void()>& all_read);
  void publish(Writing& writing, std::int64_t step);
  void remove_stale(std::vector<std::string>& warnings);
  void check_space(const CheckpointContents& contents) const;
  void retire_old(std::int64_t newest, const Stays& stays, std::vector<std::string>& warnings);

  std::filesystem::path folder_;
  std::int64_t keep_;
  FileDescriptor lock_;
  bool exclusive_ = false;  //!< False also where the file system knows no locks.
};

/// A checkpoint to read from. As long as this is there, a run that goes on meanwhile does not delete it.
class OpenCheckpoint {
 public:
  OpenCheckpoint() = default;
  OpenCheckpoint(std::filesystem::path path, FileDescriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;
};

/// One checkpoint to read from, for eval, generate, export: verified. `path` is a checkpoint's folder, or RUN
/// or RUN/checkpoints for the newest good one there; bad ones on the way are added to `problems` and left
/// where they are. Throws Error (no_checkpoint) that says what is wrong.
OpenCheckpoint open_checkpoint(const std::filesystem::path& path, std::vector<CheckpointProblem>& problems);

}  // namespace tetrad
