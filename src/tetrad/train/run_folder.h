// SPDX-License-Identifier: Apache-2.0
#pragma once
// The folder of a run. What makes it one is run.json, which only we write: a config.yaml or metrics.jsonl
// alone may be anybody's, and is not touched.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "tetrad/checkpoint/branch_point.h"
#include "tetrad/io/folder_lock.h"

namespace tetrad {

/// One process at a time holds it, for itself or for all ranks of a run.
class RunFolder {
 public:
  /// Makes the folder of a new run, with the text `config` as its config.yaml, and `origin` (an object: who
  /// began it, where and how) in run.json, with the `branch` that it is, if it is one. A folder that holds a
  /// run already is refused, unless that run has not made a single step, say, because memory did not suffice:
  /// then there is nothing to lose but weights that follow from its configuration, and the new run takes its
  /// place. So is one in which files of others have the names of ours.
  static RunFolder create(const std::filesystem::path& path, const std::string& config,
                          const nlohmann::json& origin, std::optional<BranchPoint> branch = {});

  /// The folder of a run that goes on. Its run.json and config.yaml are written anew from the newest
  /// checkpoint if they are gone. Throws Error (bad input) if it is no run's.
  static RunFolder open(const std::filesystem::path& path);

  /// The same folder on another rank than the one that holds it, which has just made the file `sign` there.
  /// Throws Error (bad input) if there is no such file, or if it is not the folder of the run with this id:
  /// the ranks then do not see the same files.
  static RunFolder join(const std::filesystem::path& path, const std::string& id, const std::string& sign);

  /// By its marker; or, for runs of 0.1.0 and those that lost it, by a checkpoint.
  static bool is_run(const std::filesystem::path& path);

  /// Whether there is a run that can go on: one that was killed while create() made it has not even settings.
  static bool has_begun(const std::filesystem::path& path);

  /// The run goes on with other settings.
  void replace_config(const std::string& config) const;

  const std::filesystem::path& path() const { return path_; }
  const std::string& id() const { return id_; }
  const std::optional<BranchPoint>& branch() const { return branch_; }
  /// Whether the run has left nothing but its first checkpoint, or not even that.
  bool has_made_no_step() const;

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
  std::optional<FolderLock> lock_;  //!< nothing: another rank has it
  std::string id_;
  std::optional<BranchPoint> branch_;
};

/// The configuration of a run: RUN/config.yaml, or that of its newest good checkpoint if it is gone. Throws
/// Error (bad input) if the folder is no run's.
std::filesystem::path config_of_run(const std::filesystem::path& run);

}  // namespace tetrad
