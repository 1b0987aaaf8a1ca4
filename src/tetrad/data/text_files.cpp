// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/text_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

bool matches(const TextFile& file, const std::vector<std::string>& include) {
  const auto matches_one = [&](const std::string& pattern) {
    const std::string name =
        pattern.find('/') == std::string::npos ? file.path.filename().string() : file.key;
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  };
  return include.empty() || std::ranges::any_of(include, matches_one);
}

void walk(const fs::path& root, const std::vector<std::string>& include, TextFiles& found) {
  std::vector<TextFile> files;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::recursive_directory_iterator();
       ++entry) {
    const bool hidden = entry->path().filename().native().starts_with('.');
    if (entry->is_symlink()) {
      found.symlinks += hidden ? 0 : 1;
      continue;
    }
    if (hidden && entry->is_directory()) entry.disable_recursion_pending();
    if (hidden || !entry->is_regular_file()) continue;
    TextFile file{entry->path(), entry->path().lexically_relative(root).generic_string()};
    if (matches(file, include)) files.push_back(std::move(file));
  }
  std::ranges::sort(files, {}, &TextFile::key);
  found.files.insert(found.files.end(), files.begin(), files.end());
}

}  // namespace

TextFiles find_text_files(const std::vector<std::string>& paths, const std::vector<std::string>& include) {
  TextFiles found;
  for (const std::string& path : paths) {
    try {
      TETRAD_CHECK(fs::exists(path), "cannot read {:?}: there is no such file or folder", path);
      if (fs::is_directory(path))
        walk(path, include, found);
      else
        found.files.push_back({path, fs::path(path).filename().generic_string()});
    } catch (const fs::filesystem_error& error) {
      fail("cannot look into {:?}: {}; check its permissions", error.path1().native(),
           error.code().message());
    }
  }
  TETRAD_CHECK(!found.files.empty(), "there are no files to read in {}{}", fmt::join(paths, ", "),
               include.empty() ? std::string() : fmt::format(" that match {}", fmt::join(include, ", ")));
  return found;
}

}  // namespace tetrad
