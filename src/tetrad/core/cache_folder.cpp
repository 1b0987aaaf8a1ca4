// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/cache_folder.h"

#include <cctype>
#include <cstdlib>

namespace tetrad {

std::filesystem::path cache_folder() {
  const auto from = [](const char* variable) -> std::filesystem::path {
    const char* value =
        std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody changes the environment
    return value == nullptr ? "" : value;
  };
  if (auto folder = from("TETRAD_CACHE"); !folder.empty()) return folder;
  if (const auto folder = from("XDG_CACHE_HOME"); !folder.empty()) return folder / "tetrad";
  if (const auto home = from("HOME"); !home.empty()) return home / ".cache" / "tetrad";
  return {};
}

std::string cache_file_name(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  return text;
}

}  // namespace tetrad
