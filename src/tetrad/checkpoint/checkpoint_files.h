// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files of one checkpoint, written piece by piece from where the tensors lie. For checkpoint_store.

#include <filesystem>
#include <functional>

#include "tetrad/checkpoint/checkpoint_contents.h"
#include "tetrad/checkpoint/manifest.h"

namespace tetrad {

/// Throws Error (failure) that calls it a bug of the caller if such a checkpoint cannot be.
void check_contents(const CheckpointContents& contents);

/// Bytes that the files of a checkpoint will have, but for their headers.
std::uint64_t bytes_of(const CheckpointContents& contents);

/// Writes all files, MANIFEST.json last: when it is there, every other is durable under its name. At most
/// kHashThreads times MemoryReader::kMostBytes of the tensors are in memory at a time besides themselves.
/// Calls all_read(), if any, as soon as no tensor is needed any more. Throws Error if anything failed.
Manifest write_checkpoint_files(const std::filesystem::path& folder, const CheckpointContents& contents,
                                const std::function<void()>& all_read);

}  // namespace tetrad
