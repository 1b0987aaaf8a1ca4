// SPDX-License-Identifier: Apache-2.0
#pragma once
// What makes a run this run and no other, however far it is: recorded in every checkpoint and compared when
// the run goes on, because a file can be edited, exchanged or put into the wrong folder.

#include <map>
#include <optional>
#include <string>

#include "tetrad/checkpoint/branch_point.h"

namespace tetrad {

struct RunIdentity {
  std::string id;                           //!< drawn when the run began; empty: 0.1.0 drew none
  std::string config;                       //!< hash of all settings that have an influence on its results
  std::map<std::string, std::string> data;  //!< hash of the tokens of each source, and of SOURCE.heldout
  std::optional<BranchPoint> branch = {};   //!< nothing: it began by itself
  friend bool operator==(const RunIdentity&, const RunIdentity&) = default;
};

/// A random UUID (RFC 9562, version 4).
std::string new_run_id();

/// 8-4-4-4-12 hexadecimal digits in lower case.
bool is_run_id(const std::string& text);

/// Throws Error (no_checkpoint) unless `now` can go on where `saved`, of `checkpoint`, ended: the same run
/// with the same data, to which sources may be added if `may_add_sources`. What `saved` did not record is not
/// compared.
void check_same_run(const RunIdentity& saved, const RunIdentity& now, const std::string& checkpoint,
                    bool may_add_sources = false);

}  // namespace tetrad
