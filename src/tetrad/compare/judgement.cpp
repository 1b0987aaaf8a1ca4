// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/judgement.h"
#include "tetrad/train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace tetrad {
namespace {

/// Losses of arms that are judged together, by learning rate and mix: these are no repetitions of each other.
class Groups {
 public:
  void add(const Trial& trial, const std::vector<double>& block) {
    Losses& losses = groups_[{trial.lr_factor, trial.mix}];
    losses.resize(block.size());
    for (std::size_t arm = 0; arm < block.size(); ++arm) losses[arm].push_back(block[arm]);
    ++pairs_;
  }

  /// The residual in percent of the loss of arm `base`.
  Residual residual(std::size_t base) const {
    std::vector<Losses> scaled;
    for (const auto& [key, group] : groups_) {
      Losses losses = group;
      const double unit = mean(losses[base]) / 100;
      for (std::vector<double>& arm : losses)
        for (double& value : arm) value /= unit;
      scaled.push_back(std::move(losses));
    }
    return pool(scaled);
  }

  /// Every group counts the same.
  ArmGap gap(std::size_t arm, std::size_t base, const Residual& residual, const Rules& rules) const {
    double percent = 0;
    double nats = 0;
    for (const auto& [key, group] : groups_) {
      const double difference = mean(group[arm]) - mean(group[base]);
      percent += 100 * difference / mean(group[base]);
      nats += difference;
    }
    const auto count = static_cast<double>(groups_.size());
    return {measure_gap(percent / count, pairs_, residual, rules), nats / count};
  }

  bool empty() const { return groups_.empty(); }

 private:
  static double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }

  std::map<std::pair<double, std::string>, Losses> groups_;
  std::int64_t pairs_ = 0;
};

/// A trial's mean training loss over the points that `is_inside`; nothing if there is none, or it is not
/// finite.
template <typename Inside>
std::optional<double> mean_loss(const TrialOutcome& trial, const Inside& is_inside) {
  double sum = 0;
  double count = 0;
  for (const TrainPoint& point : trial.metrics.train) {
    if (point.skipped || !is_inside(point.step)) continue;
    sum += point.loss;
    ++count;
  }
  if (count == 0 || !std::isfinite(sum)) return std::nullopt;
  return sum / count;
}

/// The mean over sources at the last evaluation.
std::optional<double> heldout_loss(const TrialOutcome& trial) {
  double sum = 0;
  double count = 0;
  for (const auto& [source, points] : trial.metrics.evals) {
    if (points.empty()) continue;
    sum += points.back().loss;
    ++count;
  }
  if (count == 0 || !std::isfinite(sum)) return std::nullopt;
  return sum / count;
}

struct Window {
  std::string name, title;
  ValueOf value_of;
};

std::vector<Window> windows_of(const Comparison& comparison) {
  const Windows& stated = comparison.plan.windows;
  const Config& config = comparison.trials.front().config;
  const std::int64_t begin = comparison.trunk_steps();
  const std::int64_t end = step_count(config.train);
  const std::int64_t length = end - begin;
  std::vector<Window> windows;
  const bool is_heldout = std::ranges::any_of(
      config.data.sources, [](const auto& source) { return !source.second.heldout.empty(); });
  if (is_heldout) windows.push_back({"heldout", "held-out loss at the end", heldout_loss});
  const auto last = std::max<std::int64_t>(1, std::llround(stated.last * static_cast<double>(length)));
  windows.push_back({"last", fmt::format("training loss of the last {} steps", last),
                     [from = end - last](const TrialOutcome& trial) {
                       return mean_loss(trial, [&](std::int64_t step) { return step > from; });
                     }});
  if (begin > 0) {
    const std::int64_t first = std::min(stated.first, length);
    windows.push_back({"first", fmt::format("training loss of the first {} steps after the branch", first),
                       [to = begin + first](const TrialOutcome& trial) {
                         return mean_loss(trial, [&](std::int64_t step) { return step <= to; });
                       }});
  }
  const auto primary = std::ranges::find(windows, stated.primary, &Window::name);
  if (primary != windows.end()) std::rotate(windows.begin(), primary, primary + 1);
  return windows;
}

std::optional<double> source_loss(const TrialOutcome& trial, const std::string& source) {
  const auto found = trial.metrics.evals.find(source);
  if (found == trial.metrics.evals.end() || found->second.empty() ||
      !std::isfinite(found->second.back().loss))
    return std::nullopt;
  return found->second.back().loss;
}

void compare_sources(std::size_t reference, const Rules& rules, std::vector<ArmOutcome>& arms) {
  for (std::size_t i = 0; i < arms[reference].sources.size(); ++i) {
    const std::string source = arms[reference].sources[i].source;
    const std::vector<ArmGap> gaps = compare_arms(
        arms, reference, [&](const TrialOutcome& trial) { return source_loss(trial, source); }, rules);
    for (std::size_t arm = 0; arm < arms.size(); ++arm)
      for (SourceOutcome& outcome : arms[arm].sources)
        if (outcome.source == source) outcome.gap = gaps[arm];
  }
}

/// Of learning rates and mixes, where there are several.
void compare_facets(const Comparison& comparison, std::size_t reference, const ValueOf& value_of,
                    const Rules& rules, std::vector<ArmOutcome>& arms) {
  const ComparePlan& plan = comparison.plan;
  if (plan.lr_factors.size() * plan.mixes.size() < 2) return;
  for (const double lr_factor : plan.lr_factors)
    for (const NamedOverrides& mix : plan.mixes) {
      const std::vector<ArmGap> gaps = compare_arms(
          arms, reference,
          [&](const TrialOutcome& trial) {
            const bool is_here = trial.trial->lr_factor == lr_factor && trial.trial->mix == mix.name;
            return is_here ? value_of(trial) : std::nullopt;
          },
          rules);
      for (std::size_t arm = 0; arm < arms.size(); ++arm)
        arms[arm].facets.push_back({lr_factor, mix.name, gaps[arm]});
    }
}

std::string interval(const PairedGap& gap, const Rules& rules) {
  return fmt::format("({:.4g} %: {:+.2f} to {:+.2f}; {} pairs)", 100 * (1 - rules.alpha), gap.low, gap.high,
                     gap.pairs);
}

/// What more runs could tell, of something so far away from the gap.
std::string outlook(const PairedGap& gap, double distance, const Rules& rules) {
  const std::int64_t needed = pairs_to_decide(gap, distance, rules);
  return needed > gap.pairs ? fmt::format("; about {} pairs would tell", needed) : "";
}

std::string describe(const ArmOutcome& arm, const ArmOutcome& reference, bool is_complete,
                     const Rules& rules) {
  if (arm.verdict == Verdict::reference) return "what the others are compared with";
  if (arm.verdict == Verdict::diverged)
    return fmt::format("{} of {} runs diverged", arm.divergences, arm.ended);
  if (reference.divergences > 0) return fmt::format("runs of {} itself diverged", reference.name);
  const PairedGap& gap = arm.gap.gap;
  if (gap.pairs == 0) return "no pair of runs has ended yet";
  if (!is_complete)
    return fmt::format("{:+.2f} % so far; there is no verdict before all runs have ended", gap.mean);
  if (!(gap.freedom > 0))
    return fmt::format("{:+.2f} % in one pair of runs, which says nothing about noise: use more seeds",
                       gap.mean);
  if (gap.mean == 0 && gap.low == gap.high)
    return fmt::format("the losses of {}, to the bit", reference.name);
  const std::string effect =
      fmt::format("{} {}",
                  gap.low > 0    ? fmt::format("costs {:.2f} % of the loss", gap.mean)
                  : gap.high < 0 ? fmt::format("gains {:.2f} % of the loss", -gap.mean)
                                 : fmt::format("no difference is seen: {:+.2f} %", gap.mean),
                  interval(gap, rules));
  switch (arm.verdict) {
    case Verdict::equivalent:
      return fmt::format("{}; within the margin of {:g} %", effect, rules.margin);
    case Verdict::worse:
    case Verdict::better:
      return fmt::format("{}; more than the margin of {:g} %", effect, rules.margin);
    default:
      return fmt::format("{}; within {:g} % or not is open{}", effect, rules.margin,
                         outlook(gap, std::abs(rules.margin - std::abs(gap.mean)), rules));
  }
}

}  // namespace

Rules rules_of(const ComparePlan& plan) {
  const auto look = static_cast<std::int64_t>(plan.looked.size());
  return {plan.margin, alpha_of_look(plan.alpha, plan.looks, look),
          std::max<std::int64_t>(1, std::ssize(plan.arms) - 1)};
}

std::vector<ArmGap> compare_arms(const std::vector<ArmOutcome>& arms, std::size_t reference,
                                 const ValueOf& value_of, const Rules& rules) {
  std::vector<std::vector<std::optional<double>>> values(arms.size());  // trials of all arms are in one order
  std::vector<std::size_t> sound;
  for (std::size_t arm = 0; arm < arms.size(); ++arm) {
    for (const TrialOutcome& trial : arms[arm].trials)
      values[arm].push_back(trial.has_ended() ? value_of(trial) : std::nullopt);
    if (arms[arm].divergences == 0) sound.push_back(arm);
  }
  const auto gather = [&](const std::vector<std::size_t>& chosen) {
    Groups groups;
    for (std::size_t i = 0; i < arms[reference].trials.size(); ++i) {
      std::vector<double> block;
      for (const std::size_t arm : chosen)
        if (values[arm][i]) block.push_back(*values[arm][i]);
      if (block.size() == chosen.size()) groups.add(*arms[reference].trials[i].trial, block);
    }
    return groups;
  };
  const auto base = std::ranges::find(sound, reference);
  const bool has_base = base != sound.end();
  const Groups together = gather(sound);
  const auto base_at = static_cast<std::size_t>(base - sound.begin());
  const Residual residual = has_base && !together.empty() ? together.residual(base_at) : Residual{};
  std::vector<ArmGap> gaps(arms.size());
  for (std::size_t arm = 0; arm < arms.size(); ++arm) {
    const auto place = std::ranges::find(sound, arm);
    if (has_base && place != sound.end()) {
      if (!together.empty())
        gaps[arm] = together.gap(static_cast<std::size_t>(place - sound.begin()), base_at, residual, rules);
    } else if (const Groups own = gather({reference, arm}); !own.empty()) {
      gaps[arm] = own.gap(1, 0, own.residual(0), rules);
    }
  }
  return gaps;
}

void judge_arms(const Comparison& comparison, std::size_t reference, std::vector<ArmOutcome>& arms) {
  const Rules rules = rules_of(comparison.plan);
  const std::vector<Window> windows = windows_of(comparison);
  for (const Window& window : windows) {
    const std::vector<ArmGap> gaps = compare_arms(arms, reference, window.value_of, rules);
    for (std::size_t arm = 0; arm < arms.size(); ++arm)
      arms[arm].windows.push_back({window.name, window.title, gaps[arm]});
  }
  compare_sources(reference, rules, arms);
  compare_facets(comparison, reference, windows.front().value_of, rules, arms);
  const bool is_complete = std::ranges::all_of(
      arms, [](const ArmOutcome& arm) { return std::ranges::all_of(arm.trials, &TrialOutcome::has_ended); });
  for (std::size_t i = 0; i < arms.size(); ++i) {
    ArmOutcome& arm = arms[i];
    arm.gap = arm.windows.front().gap;
    if (arm.ended > 0) arm.divergence_bound = upper_bound(arm.divergences, arm.ended, comparison.plan.alpha);
    if (i == reference)
      arm.verdict = Verdict::reference;
    else if (arm.divergences > arms[reference].divergences)
      arm.verdict = Verdict::diverged;
    else if (arms[reference].divergences == 0 && is_complete)
      arm.verdict = judge(arm.gap.gap, rules.margin);
    arm.text = describe(arm, arms[reference], is_complete, rules);
  }
}

}  // namespace tetrad
