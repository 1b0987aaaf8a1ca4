// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/host_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// The number behind a word that begins a line.
std::optional<std::int64_t> number_after(const fs::path& file, const std::string& word) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(word)) continue;
    try {
      return std::stoll(line.substr(word.size()));
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

/// What the limit of a control group leaves. Files that were read count as used there, but make room if they
/// have to. No limit is the word "max", which is no number.
std::optional<std::int64_t> left_in_group(const fs::path& group) {
  const auto limit = number_after(group / "memory.max", "");
  const auto used = number_after(group / "memory.current", "");
  if (!limit || !used) return std::nullopt;
  return std::max<std::int64_t>(
      0, *limit - *used + number_after(group / "memory.stat", "inactive_file ").value_or(0));
}

/// The control group of this process, below its mount.
fs::path own_group(const fs::path& root) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("0::/")) return line.substr(4);
  return {};
}

}  // namespace

std::optional<std::int64_t> available_memory(const fs::path& root) {
  std::optional<std::int64_t> least;
  const auto note = [&](const std::optional<std::int64_t>& bytes) {
    if (bytes) least = std::min(*bytes, least.value_or(*bytes));
  };
  constexpr std::int64_t kKibi = 1024;
  if (const auto available = number_after(root / "proc/meminfo", "MemAvailable:")) note(*available * kKibi);
  const fs::path mount = root / "sys/fs/cgroup";
  fs::path group = mount / own_group(root);  // a limit of a group above counts too
  for (; group != mount && group.has_relative_path(); group = group.parent_path()) note(left_in_group(group));
  note(left_in_group(mount));
  return least;
}

}  // namespace tetrad
