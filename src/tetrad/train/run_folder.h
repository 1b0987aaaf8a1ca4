// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "tetrad/io/mapped_file.h"

namespace tetrad {

/// The folder of a run, which one process at a time holds.
class RunFolder {
 public:
  /// Makes the folder of a new run, with the text `config` as its config.yaml. One that holds a run already
  /// is refused, unless that run has not made a single step, say, because memory did not suffice: then there
  /// is nothing to lose but weights that follow from its configuration, and the new run takes its place.
  static RunFolder create(const std::filesystem::path& path, const std::string& config);
  /// The folder of a run that goes on.
  static RunFolder open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit RunFolder(std::filesystem::path path);

  std::filesystem::path path_;
  FileDescriptor lock_;
};

}  // namespace tetrad
