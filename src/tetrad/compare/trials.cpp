// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "tetrad/config/config.h"
#include "tetrad/core/error.h"
#include "tetrad/io/sha256.h"
#include "tetrad/train/preflight.h"
#include "tetrad/train/resume.h"

namespace tetrad {
namespace {

/// What sets the pairs of a comparison apart.
struct Pair {
  std::int64_t number = 0;
  double lr_factor = 1;
  const NamedOverrides& mix;

  std::string name(std::uint64_t seed) const {
    return fmt::format("seed-{}{}{}", seed, lr_factor == 1 ? "" : fmt::format("-lr-{}", lr_factor),
                       mix.name.empty() ? "" : "-" + mix.name);
  }
};

/// Where a run writes and on which machine it runs is not part of what it computes.
bool is_compared(const std::string& key) { return !key.starts_with("run."); }

std::string value_of(const Config& config, const std::string& key) {
  for (auto& [name, text] : leaf_texts(config))
    if (name == key) return std::move(text);
  return "";
}

/// Throws unless the trials of a pair differ in their precision alone; returns the keys that do differ.
std::set<std::string> check_pair(std::span<const Trial> pair, const ComparePlan& plan) {
  std::set<std::string> keys;
  for (const Trial& trial : pair) {
    for (const std::string& key : differences(pair[0].config, trial.config)) {
      TETRAD_CHECK(arms_may_differ_in(key),
                   "the arms {} and {} differ in {}, which must be the same in all arms", plan.arms[0].name,
                   plan.arms[trial.arm].name, key);
      keys.insert(key);
    }
  }
  return keys;
}

Lock make_lock(std::span<const Trial> pair, const std::set<std::string>& keys) {
  Lock lock;
  std::string common;
  for (const auto& [key, text] : leaf_texts(pair[0].config)) {
    if (arms_may_differ_in(key) || !is_compared(key)) continue;
    common.append(key).append("=").append(text).append("\n");
    ++lock.common_keys;
  }
  lock.common_sha256 = sha256_hex(std::as_bytes(std::span(common)));
  for (const std::string& key : keys) {
    Difference difference{key, {}};
    for (const Trial& trial : pair) difference.values.push_back(value_of(trial.config, key));
    lock.differences.push_back(std::move(difference));
  }
  return lock;
}

/// Ten samples over the steps of a trial at least, for curves and for the map of quantizers.
void add_defaults(TrainConfig& train, std::int64_t trunk_steps) {
  const std::int64_t tenth = std::max<std::int64_t>(1, (step_count(train) - trunk_steps) / 10);
  if (train.eval.every == 0) train.eval.every = tenth;
  if (train.telemetry_every > 0) train.telemetry_every = std::min(train.telemetry_every, tenth);
}

Config configure(const NamedOverrides& arm, const Pair& pair, const ComparePlan& plan,
                 const std::string& common) {
  std::vector<std::string> overrides = pair.mix.overrides;
  overrides.insert(overrides.end(), arm.overrides.begin(), arm.overrides.end());
  Config config = parse_config(common, "the common configuration", overrides);
  if (plan.trunks.empty())
    config.train.seed += static_cast<std::uint64_t>(pair.number);
  else
    config.train.seed = plan.trunks[static_cast<std::size_t>(pair.number)].seed;
  TETRAD_CHECK(config.train.checkpoint.enabled,
               "a comparison goes on from checkpoints: leave out train.checkpoint.enabled=false");
  config.optim.lr *= pair.lr_factor;
  config.run.out.clear();
  return config;
}

Trunk make_trunk(const Pair& pair, const ComparePlan& plan, Config config) {
  const std::uint64_t seed = config.train.seed;
  if (plan.trunks.empty()) {
    TETRAD_CHECK(plan.trunk_steps < step_count(config.train),
                 "trunks of {} steps leave nothing of the {} steps of a run: branches would have none",
                 plan.trunk_steps, step_count(config.train));
    return {seed, "trunks/" + pair.name(seed), std::move(config), plan.trunk_steps};
  }
  const BranchPoint& given = plan.trunks[static_cast<std::size_t>(pair.number)].point;
  check_branch(given, config);
  return {seed, "", std::move(config), given.step, given};
}

void add_pair(const Pair& pair, const std::string& common, Comparison& comparison) {
  const ComparePlan& plan = comparison.plan;
  const std::size_t begin = comparison.trials.size();
  for (std::size_t arm = 0; arm < plan.arms.size(); ++arm) {
    Trial trial{arm, 0, pair.lr_factor, pair.mix.name, {}, configure(plan.arms[arm], pair, plan, common)};
    if (plan.has_trunks() && arm == 0) comparison.trunks.push_back(make_trunk(pair, plan, trial.config));
    if (plan.has_trunks()) trial.trunk = comparison.trunks.size() - 1;
    add_defaults(trial.config.train, comparison.trunk_steps());
    trial.seed = trial.config.train.seed;
    trial.folder = fmt::format("runs/{}/{}", plan.arms[arm].name, pair.name(trial.seed));
    validate(trial.config);
    check_kept_layers(trial.config);
    check_transforms(trial.config);
    comparison.trials.push_back(std::move(trial));
  }
  const std::span<const Trial> trials = std::span(comparison.trials).subspan(begin);
  const std::set<std::string> keys = check_pair(trials, plan);
  if (begin == 0) comparison.lock = make_lock(trials, keys);
}

}  // namespace

Comparison expand(const ComparePlan& plan, const std::string& common) {
  check_plan(plan);
  Comparison comparison{plan, {}, {}, {}};
  for (std::int64_t number = 0; number < plan.pairs(); ++number)
    for (const double lr_factor : plan.lr_factors)
      for (const NamedOverrides& mix : plan.mixes) add_pair({number, lr_factor, mix}, common, comparison);
  return comparison;
}

std::vector<std::string> identical_arms(const Comparison& comparison) {
  const auto value = [&](std::size_t arm) {
    std::vector<std::string> values;
    for (const Difference& difference : comparison.lock.differences) values.push_back(difference.values[arm]);
    return values;
  };
  std::vector<std::string> warnings;
  const std::vector<NamedOverrides>& arms = comparison.plan.arms;
  for (std::size_t i = 0; i < arms.size(); ++i)
    for (std::size_t j = i + 1; j < arms.size(); ++j)
      if (value(i) == value(j))
        warnings.push_back(
            fmt::format("the arms {} and {} have the same precision: their runs will be the same, to the bit",
                        arms[i].name, arms[j].name));
  return warnings;
}

}  // namespace tetrad
