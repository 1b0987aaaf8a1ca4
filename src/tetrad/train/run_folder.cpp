// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/run_folder.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "tetrad/checkpoint/checkpoint_folder.h"
#include "tetrad/checkpoint/checkpoint_store.h"
#include "tetrad/checkpoint/run_identity.h"
#include "tetrad/config/parse.h"
#include "tetrad/core/error.h"
#include "tetrad/io/atomic_file.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = "run.json";
constexpr const char* kFormat = "tetrad-run";
constexpr const char* kConfig = "config.yaml";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kCheckpoints = "checkpoints";

bool is_present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

/// The id in run.json; nothing if that is not there, or not ours.
std::optional<std::string> marked_id(const fs::path& run) {
  std::ifstream file(run / kMarker);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat) return std::nullopt;
  const auto id = json.find("id");
  if (id == json.end() || !id->is_string() || !is_run_id(id->get<std::string>())) return std::nullopt;
  return id->get<std::string>();
}

bool has_checkpoint(const fs::path& run) {
  return std::ranges::any_of(scan_checkpoints(run / kCheckpoints), [](const CheckpointEntry& entry) {
    return entry.kind != EntryKind::other && looks_complete(entry.path);
  });
}

void write_marker(const fs::path& run, const std::string& id, nlohmann::json origin) {
  origin["format"] = kFormat;
  origin["version"] = 1;
  origin["id"] = id;
  write_file_atomically(run / kMarker, origin.dump(1) + "\n");
}

/// Whether nothing speaks of a step after the first checkpoint, which is written before any is made.
bool has_made_no_step(const fs::path& run) {
  for (const CheckpointEntry& entry : scan_checkpoints(run / kCheckpoints))
    if (entry.step != 0) return false;
  std::ifstream metrics(run / kMetrics);
  for (std::string line; std::getline(metrics, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || json.value("step", nlohmann::json()) != 0) return false;
  }
  return true;
}

/// What a run without a step has left. The marker goes last.
void clear(const fs::path& run) {
  const auto remove = [](const fs::path& path) {
    std::error_code error;
    fs::remove_all(path, error);
    TETRAD_CHECK(!error, "cannot remove {}: {}", path.string(), error.message());
  };
  remove(run / kMetrics);
  for (const CheckpointEntry& entry : scan_checkpoints(run / kCheckpoints)) remove(entry.path);
  remove(run / kConfig);
  remove(run / kMarker);
}

void refuse_files_of_others(const fs::path& folder) {
  for (const char* name : {kMarker, kConfig, kMetrics, kCheckpoints})
    TETRAD_CHECK(
        !is_present(folder / name),
        "{} is there, but {} is not the folder of a run of Tetrad ({} is missing or not ours): choose "
        "another --out",
        (folder / name).string(), folder.string(), kMarker);
}

void check_is_run(const fs::path& path) {
  TETRAD_CHECK(RunFolder::is_run(path), "{} is not the folder of a run: it has neither {} nor a checkpoint",
               path.string(), kMarker);
}

fs::path newest_checkpoint(const fs::path& run) {
  std::vector<CheckpointProblem> problems;
  return open_checkpoint(run, problems).path();
}

}  // namespace

RunFolder::RunFolder(fs::path path) : path_(std::move(path)), lock_(path_) {}

bool RunFolder::is_run(const fs::path& path) { return marked_id(path) || has_checkpoint(path); }

bool RunFolder::has_begun(const fs::path& path) {
  return has_checkpoint(path) || (marked_id(path) && is_present(path / kConfig));
}

RunFolder RunFolder::create(const fs::path& path, const std::string& config, const nlohmann::json& origin) {
  std::error_code error;
  fs::create_directories(path, error);
  TETRAD_CHECK(!error, "cannot create {}: {}", path.string(), error.message());
  RunFolder folder(path);
  if (is_run(path)) {
    TETRAD_CHECK(marked_id(path) && has_made_no_step(path),
                 "{} holds a run already: go on with it (tetrad train --resume {}) or choose another --out",
                 path.string(), path.string());
    clear(path);
  } else {
    refuse_files_of_others(path);
  }
  folder.id_ = new_run_id();
  write_marker(path, folder.id_, origin);
  write_file_atomically(path / kConfig, config);
  return folder;
}

RunFolder RunFolder::open(const fs::path& path) {
  std::error_code ignored;
  TETRAD_CHECK(fs::is_directory(path, ignored), "{} is not the folder of a run: there is no such folder",
               path.string());
  RunFolder folder(path);
  for (const char* name : {kMarker, kConfig, kMetrics}) remove_leftovers(path, name);
  check_is_run(path);
  if (const std::optional<std::string> id = marked_id(path)) {
    folder.id_ = *id;
  } else {
    folder.id_ = verify_checkpoint(newest_checkpoint(path)).run;
    if (folder.id_.empty()) folder.id_ = new_run_id();  // 0.1.0 knew none
    TETRAD_CHECK(!is_present(path / kMarker), "{} is not ours, and is needed for the run: move it away",
                 (path / kMarker).string());
    write_marker(path, folder.id_, {{"restored", true}});
  }
  if (!is_present(path / kConfig)) {
    write_file_atomically(path / kConfig, config::read_text(config_of_run(path).string()));
  }
  return folder;
}

void RunFolder::replace_config(const std::string& config) const {
  write_file_atomically(path_ / kConfig, config);
}

fs::path config_of_run(const fs::path& run) {
  check_is_run(run);
  if (is_present(run / kConfig)) return run / kConfig;
  return newest_checkpoint(run) / kConfig;
}

}  // namespace tetrad
