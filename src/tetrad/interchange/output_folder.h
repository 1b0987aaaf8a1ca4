// SPDX-License-Identifier: Apache-2.0
#pragma once
// A folder that appears whole or not at all.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "tetrad/io/atomic_file.h"

namespace tetrad {

enum class Overwrite : bool { no, yes };

/// Called with what is done of how much; throws to stop, and then nothing is left behind.
using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

/// Files are written into path(), a new folder beside `target`; commit() makes it durable and gives it its
/// name. Without commit() nothing remains, and what was there before is untouched.
class OutputFolder {
 public:
  using IsOurs = std::function<bool(const std::filesystem::path&)>;

  /// An empty `target` is taken over. One that holds anything is refused with Error (bad input), unless
  /// `overwrite` and `is_ours(target)`.
  OutputFolder(const std::filesystem::path& target, Overwrite overwrite, const IsOurs& is_ours);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  /// What the constructor refuses, for those who have much to do before they need the folder.
  static void check(const std::filesystem::path& target, Overwrite overwrite, const IsOurs& is_ours);

  const std::filesystem::path& path() const { return temporary_; }
  /// Throws Error (failure).
  void commit();

 private:
  std::filesystem::path target_;
  std::optional<FoldersAbove> folders_;
  std::filesystem::path temporary_;  //!< empty once there is nothing to remove
};

}  // namespace tetrad
