// SPDX-License-Identifier: Apache-2.0
#include "tetrad/config/paths.h"

#include <filesystem>

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// Calls use(key, path) for each that is given.
template <typename Use>
void for_each_path(Config& config, const Use& use) {
  const auto visit = [&](const std::string& key, std::string& path) {
    if (!path.empty()) use(key, path);
  };
  for (auto& [name, source] : config.data.sources) {
    visit("data.sources." + name + ".path", source.path);
    visit("data.sources." + name + ".heldout", source.heldout);
  }
  visit("data.tokenizer", config.data.tokenizer);
  visit("train.from", config.train.from);
}

/// A token file is named without its ending.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) || fs::exists(path.native() + ".bin", ignored);
}

/// The folder of the file in an origin such as "run.yaml:12"; empty if it is none.
fs::path folder_of(const std::string& origin) {
  const fs::path file = origin.substr(0, origin.rfind(':'));
  std::error_code ignored;
  return fs::is_regular_file(file, ignored) ? file.parent_path() : fs::path();
}

}  // namespace

void resolve_paths(Config& config, const Provenance& provenance) {
  for_each_path(config, [&](const std::string& key, std::string& path) {
    const auto origin = provenance.origins.find(key);
    if (origin == provenance.origins.end() || fs::path(path).is_absolute() || is_there(path)) return;
    const fs::path beside = folder_of(origin->second) / path;
    if (is_there(beside)) path = beside.lexically_normal().string();
  });
}

void make_paths_absolute(Config& config) {
  for_each_path(config, [&](const std::string& /*key*/, std::string& path) {
    if (is_there(path)) path = fs::absolute(path).lexically_normal().string();  // not the word "bytes"
  });
}

}  // namespace tetrad
