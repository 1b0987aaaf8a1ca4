// SPDX-License-Identifier: Apache-2.0
#pragma once
// The runs of a comparison. Only the precision differs between arms: that is checked on the resolved
// configurations, not assumed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/compare/plan.h"
#include "tetrad/train/config.h"

namespace tetrad {

/// What the trials of a pair go on from.
struct Trunk {
  std::uint64_t seed = 0;
  std::string folder;  //!< below that of the comparison: "trunks/seed-1"; empty: it is given
  Config config;       //!< of the whole run, as the reference has it
  std::int64_t steps = 0;
  std::optional<BranchPoint> given = {};
};

/// One run. Trials of different arms with the same seed, learning rate and mix are a pair.
struct Trial {
  std::size_t arm = 0;  //!< index into the plan
  std::uint64_t seed = 0;
  double lr_factor = 1;
  std::string mix;
  std::string folder;  //!< below that of the comparison: "runs/nvfp4/seed-1"
  Config config;
  std::optional<std::size_t> trunk = {};  //!< index into those of the comparison
};

/// A key that trials have different values of, and the value of each arm.
struct Difference {
  std::string key;
  std::vector<std::string> values;  //!< by arm
};

/// The proof that only the precision differs.
struct Lock {
  std::string common_sha256;  //!< hash of everything else in the configuration
  std::int64_t common_keys = 0;
  std::vector<Difference> differences;
};

struct Comparison {
  ComparePlan plan;
  std::vector<Trunk> trunks;  //!< one for each pair, or none
  std::vector<Trial> trials;  //!< pair after pair, so that a comparison that is stopped has whole ones
  Lock lock;

  /// Steps that all arms of a pair share.
  std::int64_t trunk_steps() const { return trunks.empty() ? 0 : trunks[0].steps; }
};

/// Every trial of the plan over the common configuration, which is YAML. Throws Error (bad input) if arms
/// differ in anything but the precision, or if a configuration is not valid.
Comparison expand(const ComparePlan& plan, const std::string& common);

/// In words: arms that nothing can be learned from, because they are the same.
std::vector<std::string> identical_arms(const Comparison& comparison);

}  // namespace tetrad
