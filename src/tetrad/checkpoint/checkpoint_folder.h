// SPDX-License-Identifier: Apache-2.0
#pragma once
// One checkpoint's folder, and the names in the folder that holds a run's checkpoints. For checkpoint_store.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/checkpoint/manifest.h"
#include "tetrad/io/mapped_file.h"

namespace tetrad {

/// What an entry `step-…` is, by its name alone.
enum class EntryKind : std::uint8_t {
  checkpoint,  //!< step-N
  temporary,   //!< step-N.tmp.U: being written or removed, or what a killed writer left
  set_aside,   //!< step-N.old.U: a good checkpoint that a new one of the same step is replacing
  other,       //!< step-N.bad.U (quarantined), or a name that is not ours
};

struct CheckpointEntry {
  EntryKind kind = EntryKind::other;
  std::int64_t step = -1;  //!< -1 for `other`
  std::filesystem::path path;
};

CheckpointEntry parse_entry(const std::filesystem::path& path);

/// Every entry `step-…`, the newest step first, in a fixed order; nothing if there is no such folder. Throws
/// Error (no_checkpoint) if it cannot be read: that is not the same as being empty.
std::vector<CheckpointEntry> scan_checkpoints(const std::filesystem::path& folder);

enum class Reread : std::uint8_t {
  cached,     //!< as the system has it
  from_disk,  //!< drops the system's copy first, so that what was just written is really read again
};

/// The manifest, and that of every file the size and the hash are right. Throws Error: (bad input) says what
/// is wrong with the checkpoint; (failure) is the machine's fault (a disk that cannot be read, no memory, no
/// descriptors) and says nothing about it.
Manifest verify_checkpoint(const std::filesystem::path& folder, Reread reread = Reread::cached);

/// Marks a checkpoint as one that is being read, until the descriptor is closed or the process ends. Nothing
/// if it is gone, or about to be deleted. Where the file system knows no locks, it is not marked.
std::optional<FileDescriptor> lock_for_reading(const std::filesystem::path& folder);

/// Whether nobody reads it; until the descriptor is closed nobody can begin to.
std::optional<FileDescriptor> lock_for_deleting(const std::filesystem::path& folder);

/// Bytes of all files of a verified checkpoint.
std::uint64_t checkpoint_bytes(const std::filesystem::path& folder);

/// verify_checkpoint() without the hashes: quick, and finds what a killed or full machine leaves.
bool looks_complete(const std::filesystem::path& folder);

}  // namespace tetrad
