// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files that appear whole or not at all, even when the program is killed or the disk is full.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/io/mapped_file.h"
#include "tetrad/io/sha256.h"

namespace tetrad {

/// Writes into a temporary file in the folder of `target`. commit() makes it durable and puts it in the place
/// of `target` at once; without commit() nothing remains and an existing target is untouched. A symbolic link
/// is replaced, not followed. It goes through a descriptor of the folder, so that neither a change of the
/// working directory nor a renamed parent can lead the rename elsewhere. For one thread at a time, but for
/// write_at() without a hash.
class AtomicFile {
 public:
  /// `hash`, if any, gets every byte as it is written; writes must then follow each other without gaps.
  /// Throws Error (bad input) if the target cannot be created.
  explicit AtomicFile(const std::filesystem::path& target, Sha256* hash = nullptr);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Throws Error (failure) if the disk is full or broken.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  /// At the end of what was written so far.
  void append(std::span<const std::byte> bytes) { write_at(end_.load(), bytes); }

  /// Makes the contents durable under the temporary name; nothing can be written afterwards. Writers of
  /// several files flush all of them before the first commit(), so that a full disk is noticed while nothing
  /// has changed.
  void flush();

  /// Removes what is there under the name of the target, if anything.
  void remove_target();

  /// Flushes if that was not done. To be called once: if it throws Error (failure), the destructor removes
  /// the temporary file.
  void commit();

 private:
  void check_target() const;
  void create_temporary();
  void write_piece(std::uint64_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void failed(std::string_view action) const;

  std::string target_;          //!< For messages.
  std::string name_;            //!< Within the folder.
  std::string temporary_name_;  //!< Empty when there is none to remove.
  FileDescriptor folder_;
  FileDescriptor file_;
  Sha256* hash_;
  std::atomic<std::uint64_t> end_ = 0;  //!< end of the furthest byte written
};

/// The folder that an output is to be in, and those above it, made where a user names new ones. AtomicFile
/// does not do this itself: a folder that disappears under a run must be noticed. Those that were made and
/// are still empty at the end are removed again, so that an output that was refused leaves nothing behind;
/// it therefore has to live longer than what writes the output.
class FoldersAbove {
 public:
  /// Throws Error (bad input) if a folder cannot be created.
  explicit FoldersAbove(const std::filesystem::path& output);
  FoldersAbove(const FoldersAbove&) = delete;
  FoldersAbove& operator=(const FoldersAbove&) = delete;
  ~FoldersAbove() { remove_empty(); }

 private:
  void remove_empty() const;

  std::vector<std::filesystem::path> made_;  //!< the innermost first
};

/// A whole small file in one call.
void write_file_atomically(const std::filesystem::path& target, std::string_view text);

/// Removes temporary files that a killed writer of `folder`/`name` left. Only for who knows that nobody is
/// writing it.
void remove_leftovers(const std::filesystem::path& folder, std::string_view name);

/// `prefix` followed by something that no entry of the folder has.
std::filesystem::path unused_path(const std::filesystem::path& prefix);

/// Makes the names in a folder durable. False, with errno, if that failed.
bool sync_folder(int folder);
bool sync_folder(const std::filesystem::path& folder);

}  // namespace tetrad
