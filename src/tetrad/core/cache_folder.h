// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where programs keep what they can compute again.

#include <filesystem>
#include <string>

namespace tetrad {

/// TETRAD_CACHE, or the tetrad folder in XDG_CACHE_HOME or ~/.cache; empty: nowhere. It need not exist.
std::filesystem::path cache_folder();

/// A name for a file there, from any text.
std::string cache_file_name(std::string text);

}  // namespace tetrad
