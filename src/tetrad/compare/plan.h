// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is compared: arms, each a precision (of products, of AdamW's moments), times seeds, learning rates and
// data mixes. Arms may branch off from trunks that they share instead of beginning each by itself.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tetrad/checkpoint/branch_point.h"

namespace tetrad {

/// Changes to the common configuration under a name: an arm's precision, or a mix of data.
struct NamedOverrides {
  std::string name;
  std::vector<std::string> overrides;  //!< "precision.rht=none"
  friend bool operator==(const NamedOverrides&, const NamedOverrides&) = default;
};

/// What can be measured after the runs: on the reference's weights, by a bad step and an interruption, on
/// questions.
inline constexpr std::array kProbes = {"gradients", "losses", "recovery", "checks"};
/// What a list of probes may hold: those, and `none` for nothing at all.
std::vector<std::string> probe_choices();

/// A checkpoint from which all arms go on.
struct GivenTrunk {
  BranchPoint point;
  std::uint64_t seed = 0;  //!< train.seed of its run
  friend bool operator==(const GivenTrunk&, const GivenTrunk&) = default;
};

/// Which losses are compared, stated before the runs.
struct Windows {
  std::int64_t first = 100;  //!< training loss of so many steps after the branch; only where there are trunks
  double last = 0.1;         //!< training loss of the last part of the steps, those of a trunk left out
  /// What verdicts rest on: first, last, or heldout, which is the held-out loss at the end (`last` where
  /// nothing is held out).
  std::string primary = "heldout";
  friend bool operator==(const Windows&, const Windows&) = default;
};

struct ComparePlan {
  std::vector<NamedOverrides> arms;  //!< the first is what the others are compared with
  std::int64_t seeds = 1;            //!< train.seed and those after it
  std::vector<double> lr_factors = {1};
  std::vector<NamedOverrides> mixes = {{}};  //!< one without a name: the data as configured
  double margin = 1.5;                       //!< percent of the reference's loss
  double alpha = 0.05;                       //!< largest probability that any verdict is wrong
  std::int64_t looks = 1;  //!< how often verdicts are to be seen before seeds may be added for the last time
  std::vector<std::int64_t> looked = {};  //!< pairs of every arm at the looks so far, but for the present one
  std::int64_t trunk_steps = 0;           //!< not 0: arms branch off from trunks of so many steps
  std::vector<GivenTrunk> trunks = {};    //!< or from these, which are there instead of seeds
  Windows windows = {};
  /// No part of what is compared: what is measured after the runs (empty: everything), and whether no
  /// checkpoints stay but those that this needs.
  std::vector<std::string> probes = {};
  bool light = false;

  bool has_trunks() const { return trunk_steps > 0 || !trunks.empty(); }
  /// How many runs each arm has of one learning rate and mix.
  std::int64_t pairs() const { return trunks.empty() ? seeds : static_cast<std::int64_t>(trunks.size()); }
  friend bool operator==(const ComparePlan&, const ComparePlan&) = default;
};

/// `text` is a list of recipes ("bf16,nvfp4") or the name of a YAML file with `arms` and, if it likes, seeds,
/// lr_factors, mixes, margin, alpha, looks, trunk_steps, windows, probes and light. Throws Error (bad input).
ComparePlan read_plan(const std::string& text);

/// The same for the text of such a file; `name` stands for it in messages.
ComparePlan parse_plan(const std::string& yaml, const std::string& name);

/// Whether arms may differ in this key of the configuration: in their precision and nothing else.
bool arms_may_differ_in(const std::string& key);

/// Whether a plan is sound by itself. Throws Error (bad input).
void check_plan(const ComparePlan& plan);

/// YAML that parse_plan understands.
std::string to_yaml(const ComparePlan& plan);

}  // namespace tetrad
