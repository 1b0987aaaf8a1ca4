// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text files as people have them: single ones and folders full.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tetrad {

struct TextFile {
  std::filesystem::path path;
  std::string key;  //!< the path as seen from the folder that was named: the same on every machine
};

struct TextFiles {
  std::vector<TextFile> files;  //!< in the order of the arguments, folders in the order of their keys
  std::int64_t symlinks = 0;    //!< met in folders, and not followed
};

/// Files as named, and the regular files below folders whose names do not begin with a dot. With `include`,
/// only files in folders that match one of these patterns, by name or, if the pattern has a slash, by key.
/// Throws Error (bad input) if a path does not exist or no file is left.
TextFiles find_text_files(const std::vector<std::string>& paths, const std::vector<std::string>& include);

}  // namespace tetrad
