// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a run branched off: the checkpoint of another run whose state it took over, all of it.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tetrad {

struct BranchPoint {
  std::string run;        //!< id of the run that the checkpoint is of; empty: 0.1.0 knew none
  std::int64_t step = 0;  //!< steps that it had made
  std::string sha256;     //!< of the checkpoint's MANIFEST.json, and so of all its files
  std::string
      checkpoint;  //!< where it was; it need not stay there once the branch has a checkpoint of its own
  friend bool operator==(const BranchPoint&, const BranchPoint&) = default;
};

/// Of a checkpoint that was verified.
BranchPoint branch_point(const std::filesystem::path& checkpoint);

/// As run.json and state.json have it; reading throws nlohmann::json::exception.
void to_json(nlohmann::json& json, const BranchPoint& point);
void from_json(const nlohmann::json& json, BranchPoint& point);

}  // namespace tetrad
