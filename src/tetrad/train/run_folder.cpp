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
#include "tetrad/checkpoint/snapshot.h"
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

/// What run.json says of the run.
struct Marker {
  std::string id;
  std::optional<BranchPoint> branch;
};

/// Nothing if there is no run.json, or if it is not ours.
std::optional<Marker> read_marker(const fs::path& run) {
  std::ifstream file(run / kMarker);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat) return std::nullopt;
  try {
    Marker marker{json.at("id").get<std::string>(), std::nullopt};
    if (const auto branch = json.find("branch"); branch != json.end())
      marker.branch = branch->get<BranchPoint>();
    return is_run_id(marker.id) ? std::optional(marker) : std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

/// What a writer that was killed has left; for who holds the folder.
void remove_leftovers_of_run(const fs::path& run) {
  for (const char* name : {kMarker, kConfig, kMetrics}) remove_leftovers(run, name);
}

bool has_checkpoint(const fs::path& run) {
  return std::ranges::any_of(scan_checkpoints(run / kCheckpoints), [](const CheckpointEntry& entry) {
    return entry.kind != EntryKind::other && looks_complete(entry.path);
  });
}

void write_marker(const fs::path& run, const Marker& marker, nlohmann::json origin) {
  origin["format"] = kFormat;
  origin["version"] = 1;
  origin["id"] = marker.id;
  if (marker.branch) origin["branch"] = *marker.branch;
  write_file_atomically(run / kMarker, origin.dump(1) + "\n");
}

/// Whether nothing speaks of a step after the first checkpoint, which is written before any is made.
bool made_no_step(const fs::path& run, const std::optional<BranchPoint>& branch) {
  const std::int64_t first = branch ? branch->step : 0;
  for (const CheckpointEntry& entry : scan_checkpoints(run / kCheckpoints))
    if (entry.step != first) return false;
  std::ifstream metrics(run / kMetrics);
  for (std::string line; std::getline(metrics, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || json.value("step", nlohmann::json()) != first) return false;
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

bool RunFolder::is_run(const fs::path& path) { return read_marker(path) || has_checkpoint(path); }

bool RunFolder::has_begun(const fs::path& path) {
  return has_checkpoint(path) || (read_marker(path) && is_present(path / kConfig));
}

bool RunFolder::has_made_no_step() const { return made_no_step(path_, branch_); }

RunFolder RunFolder::create(const fs::path& path, const std::string& config, const nlohmann::json& origin,
                            std::optional<BranchPoint> branch) {
  std::error_code error;
  fs::create_directories(path, error);
  TETRAD_CHECK(!error, "cannot create {}: {}", path.string(), error.message());
  RunFolder folder(path);
  folder.lock_.emplace(path);
  remove_leftovers_of_run(path);
  if (is_run(path)) {
    const std::optional<Marker> marker = read_marker(path);
    TETRAD_CHECK(marker && made_no_step(path, marker->branch),
                 "{} holds a run already: go on with it (tetrad train --resume {}) or choose another --out",
                 path.string(), path.string());
    clear(path);
  } else {
    refuse_files_of_others(path);
  }
  folder.id_ = new_run_id();
  folder.branch_ = std::move(branch);
  write_marker(path, {folder.id_, folder.branch_}, origin);
  write_file_atomically(path / kConfig, config);
  return folder;
}

RunFolder RunFolder::open(const fs::path& path) {
  std::error_code ignored;
  TETRAD_CHECK(fs::is_directory(path, ignored), "{} is not the folder of a run: there is no such folder",
               path.string());
  RunFolder folder(path);
  folder.lock_.emplace(path);
  remove_leftovers_of_run(path);
  check_is_run(path);
  if (const std::optional<Marker> marker = read_marker(path)) {
    folder.id_ = marker->id;
    folder.branch_ = marker->branch;
  } else {
    const fs::path checkpoint = newest_checkpoint(path);
    folder.id_ = verify_checkpoint(checkpoint).run;
    folder.branch_ = load_state(checkpoint).identity.branch;
    if (folder.id_.empty()) folder.id_ = new_run_id();  // 0.1.0 knew none
    TETRAD_CHECK(!is_present(path / kMarker), "{} is not ours, and is needed for the run: move it away",
                 (path / kMarker).string());
    write_marker(path, {folder.id_, folder.branch_}, {{"restored", true}});
  }
  if (!is_present(path / kConfig)) {
    write_file_atomically(path / kConfig, config::read_text(config_of_run(path).string()));
  }
  return folder;
}

RunFolder RunFolder::join(const fs::path& path, const std::string& id, const std::string& sign) {
  RunFolder folder(path);
  const std::optional<Marker> marker = read_marker(path);
  TETRAD_CHECK(
      marker && marker->id == id && is_present(path / sign),
      "{} is not the folder that the first rank has under this name: all ranks of a run need a folder "
      "that they share (NFS, Lustre or the like)",
      path.string());
  folder.id_ = marker->id;
  folder.branch_ = marker->branch;
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
