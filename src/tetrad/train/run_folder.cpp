// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "tetrad/checkpoint/checkpoint_folder.h"
#include "tetrad/core/error.h"
#include "tetrad/io/atomic_file.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// Whether nothing speaks of a step after the first checkpoint, which is written before any is made.
bool has_made_no_step(const fs::path& folder) {
  for (const CheckpointEntry& entry : scan_checkpoints(folder / "checkpoints"))
    if (entry.step != 0) return false;
  std::ifstream metrics(folder / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || json.value("step", nlohmann::json()) != 0) return false;
  }
  return true;
}

/// What a run without a step has left. The configuration goes last, because it marks the folder as a run's.
void clear(const fs::path& folder) {
  const auto remove = [](const fs::path& path) {
    std::error_code error;
    fs::remove_all(path, error);
    TETRAD_CHECK(!error, "cannot remove {}: {}", path.string(), error.message());
  };
  remove(folder / "metrics.jsonl");
  for (const CheckpointEntry& entry : scan_checkpoints(folder / "checkpoints")) remove(entry.path);
  remove(folder / "config.yaml");
}

}  // namespace

RunFolder::RunFolder(fs::path path) : path_(std::move(path)) {
  lock_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_.is_open()) fail_errno("cannot open " + path_.string(), ExitCode::bad_input);
  // Any other errno: a file system without locks, which the run can do without.
  TETRAD_CHECK(::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK,
               "another process is training in {}: wait until it ends, or choose another --out",
               path_.string());
}

RunFolder RunFolder::create(const fs::path& path, const std::string& config) {
  std::error_code error;
  fs::create_directories(path, error);
  TETRAD_CHECK(!error, "cannot create {}: {}", path.string(), error.message());
  RunFolder folder(path);
  if (fs::exists(path / "config.yaml")) {
    TETRAD_CHECK(has_made_no_step(path),
                 "{} holds a run already: go on with it (tetrad train --resume {}) or choose another --out",
                 path.string(), path.string());
    clear(path);
  }
  write_file_atomically(path / "config.yaml", config);
  return folder;
}

RunFolder RunFolder::open(const fs::path& path) { return RunFolder(path); }

}  // namespace tetrad
