// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tetrad/compare/runner.h"
#include "tetrad/core/error.h"
#include "tetrad/model/estimate.h"
#include "tetrad/plot/figure.h"

namespace tetrad {
namespace {

double mean(const std::vector<double>& values) {
  return values.empty()
             ? 0
             : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Pairs of a number of the reference's trial and of the arm's.
struct Pairs {
  std::vector<double> reference, arm;

  std::vector<double> percent() const {
    std::vector<double> gaps;
    for (std::size_t i = 0; i < arm.size(); ++i) gaps.push_back(100 * (arm[i] - reference[i]) / reference[i]);
    return gaps;
  }
  double nats() const { return mean(arm) - mean(reference); }
};

template <typename Value>
Pairs make_pairs(const ArmOutcome& reference, const ArmOutcome& arm, const Value& value_of) {
  Pairs pairs;
  for (const TrialOutcome& trial : arm.trials) {
    const auto other = std::ranges::find_if(
        reference.trials, [&](const TrialOutcome& t) { return t.trial->is_pair_of(*trial.trial); });
    if (other == reference.trials.end() || !trial.has_ended() || !other->has_ended()) continue;
    const std::optional<double> a = value_of(other->metrics);
    const std::optional<double> b = value_of(trial.metrics);
    if (!a || !b) continue;
    pairs.reference.push_back(*a);
    pairs.arm.push_back(*b);
  }
  return pairs;
}

std::optional<double> last_loss(const RunMetrics& run, const std::string& source) {
  const auto found = run.evals.find(source);
  if (found == run.evals.end() || found->second.empty() || !std::isfinite(found->second.back().loss))
    return std::nullopt;
  return found->second.back().loss;
}

TrialOutcome read_trial(const Trial& trial, const std::filesystem::path& folder) {
  TrialOutcome outcome{&trial, "missing", {}};
  const std::filesystem::path run = folder / trial.folder;
  const std::string ending = ending_of(run);
  std::error_code ignored;
  const auto size = std::filesystem::file_size(run / "metrics.jsonl", ignored);
  if (ignored || size == 0) return outcome;
  try {
    outcome.metrics = read_run(run);
  } catch (const Error&) {
    if (!ending.empty()) throw;
    return outcome;  // it has not made a step yet
  }
  outcome.ending = ending.empty() ? "running" : ending;
  outcome.machine = read_machine(run);
  return outcome;
}

void add_health(const TrialOutcome& trial, ArmOutcome& arm) {
  arm.ended += trial.has_ended() ? 1 : 0;
  arm.divergences += trial.ending == "diverged" ? 1 : 0;
  arm.spikes += std::ranges::count_if(trial.metrics.events,
                                      [](const EventPoint& e) { return e.what.starts_with("loss spike"); });
  arm.skipped_steps += std::ranges::count_if(trial.metrics.train, &TrainPoint::skipped);
}

/// The fastest product that any process measured on a machine: one that was busy at the time measures too
/// little.
double best_peak(const std::vector<ArmOutcome>& arms, const Machine& machine) {
  double best = 0;
  for (const ArmOutcome& arm : arms)
    for (const TrialOutcome& trial : arm.trials)
      if (trial.machine && trial.machine->backend == machine.backend &&
          trial.machine->device == machine.device && trial.machine->threads == machine.threads)
        best = std::max(best, trial.machine->peak_tflops);
  return best;
}

void add_cost(const std::vector<ArmOutcome>& arms, ArmOutcome& arm) {
  const Config& config = arm.trials.front().trial->config;
  const double tflop_per_token = training_flops_per_token(config.model, config.train.sequence) / 1e12;
  std::vector<double> speeds;
  std::vector<double> utilisations;
  std::vector<double> joules;
  std::vector<double> busy;
  for (const TrialOutcome& trial : arm.trials) {
    double energy = 0;
    double tokens = 0;
    std::int64_t before = 0;
    for (const TrainPoint& point : trial.metrics.train) {
      if (point.joules) {
        energy += *point.joules;
        tokens += static_cast<double>(point.tokens - before);
      }
      if (point.device_busy) busy.push_back(*point.device_busy);
      before = point.tokens;
      arm.memory_bytes = std::max(arm.memory_bytes, point.memory_bytes);
    }
    if (const std::optional<double> speed = median_speed(trial.metrics)) {
      speeds.push_back(*speed);
      if (const double peak = trial.machine ? best_peak(arms, *trial.machine) : 0; peak > 0)
        utilisations.push_back(tflop_per_token * *speed / peak);
    }
    if (tokens > 0) joules.push_back(energy / tokens);
    for (const CheckpointPoint& checkpoint : trial.metrics.checkpoints) {
      arm.checkpoint_seconds = std::max(arm.checkpoint_seconds, checkpoint.seconds);
      arm.checkpoint_bytes = std::max(arm.checkpoint_bytes, checkpoint.bytes);
    }
  }
  arm.tokens_per_s = mean(speeds);
  arm.tflops = tflop_per_token * arm.tokens_per_s;
  // Above 1 the product was measured wrongly, and nothing is known.
  if (!utilisations.empty() && std::ranges::max(utilisations) <= 1) arm.utilisation = mean(utilisations);
  if (!joules.empty()) arm.joules_per_token = mean(joules);
  if (!busy.empty()) arm.device_busy = mean(busy);
}

/// The loss that a run is judged by, over its tokens: the mean over sources of each evaluation, or, where
/// nothing is held out, training losses smoothed over a fiftieth of the run.
Curve loss_curve(const RunMetrics& run) {
  Curve curve;
  if (!run.evals.empty()) {
    const std::vector<EvalPoint>& first = run.evals.begin()->second;
    for (std::size_t i = 0; i < first.size(); ++i) {
      double sum = 0;
      for (const auto& [source, points] : run.evals) sum += i < points.size() ? points[i].loss : NAN;
      curve.x.push_back(static_cast<double>(first[i].tokens));
      curve.y.push_back(sum / static_cast<double>(run.evals.size()));
    }
    return curve;
  }
  for (const TrainPoint& point : run.train) {
    curve.x.push_back(static_cast<double>(point.tokens));
    curve.y.push_back(point.loss);
  }
  curve.y =
      moving_average(curve.y, std::max<std::int64_t>(1, static_cast<std::int64_t>(run.train.size()) / 50));
  return curve;
}

/// Tokens at which the curve passes `loss` for the last time, between two of its points.
std::optional<double> tokens_at(const Curve& curve, double loss) {
  for (std::size_t i = curve.x.size(); i-- > 1;) {
    const double above = curve.y[i - 1] - loss;
    const double below = curve.y[i] - loss;
    if (above >= 0 && below <= 0 && above > below)
      return curve.x[i - 1] + (curve.x[i] - curve.x[i - 1]) * above / (above - below);
  }
  return std::nullopt;
}

std::optional<double> relative_tokens(const RunMetrics& reference, const RunMetrics& arm) {
  const Curve a = loss_curve(reference);
  const Curve b = loss_curve(arm);
  if (a.y.empty() || b.y.empty() || !std::isfinite(a.y.back()) || !std::isfinite(b.y.back()))
    return std::nullopt;
  if (a.y.back() == b.y.back()) return 1;
  if (b.y.back() > a.y.back()) {
    const std::optional<double> earlier = tokens_at(a, b.y.back());
    return earlier ? std::optional(a.x.back() / *earlier) : std::nullopt;
  }
  const std::optional<double> sooner = tokens_at(b, a.y.back());
  return sooner ? std::optional(*sooner / a.x.back()) : std::nullopt;
}

std::vector<SourceOutcome> compare_sources(const ArmOutcome& reference, const ArmOutcome& arm,
                                           const ComparePlan& plan) {
  struct Values {
    std::vector<double> losses, bits_per_byte, excess_nats;
  };
  std::map<std::string, Values> sources;
  for (const TrialOutcome& trial : arm.trials) {
    for (const auto& [name, points] : trial.metrics.evals) {
      if (points.empty() || !std::isfinite(points.back().loss)) continue;
      Values& values = sources[name];
      values.losses.push_back(points.back().loss);
      if (points.back().bits_per_byte) values.bits_per_byte.push_back(*points.back().bits_per_byte);
      if (points.back().excess_nats) values.excess_nats.push_back(*points.back().excess_nats);
    }
  }
  std::vector<SourceOutcome> result;
  for (const auto& [name, values] : sources) {
    SourceOutcome source;
    source.source = name;
    source.loss = mean(values.losses);
    if (!values.bits_per_byte.empty()) source.bits_per_byte = mean(values.bits_per_byte);
    if (!values.excess_nats.empty()) source.excess_nats = mean(values.excess_nats);
    const Pairs pairs = make_pairs(
        reference, arm, [&of = source.source](const RunMetrics& run) { return last_loss(run, of); });
    source.gap = measure_gap(pairs.percent(), plan.margin, plan.alpha);
    source.gap_nats = pairs.nats();
    result.push_back(std::move(source));
  }
  return result;
}

std::string describe(const ArmOutcome& arm, const ArmOutcome& reference, const ComparePlan& plan) {
  const PairedGap& gap = arm.gap;
  const std::string width = fmt::format("{:g} % interval", 100 * (1 - 2 * plan.alpha));
  const std::string figures = gap.pairs >= 2 ? fmt::format("{:+.2f} % ({} {:+.2f} to {:+.2f}, {} pairs)",
                                                           gap.mean, width, gap.low, gap.high, gap.pairs)
                                             : fmt::format("{:+.2f} %", gap.mean);
  switch (arm.verdict) {
    case Verdict::reference:
      return "what the others are compared with";
    case Verdict::equivalent:
      return fmt::format("within {:g} % of {}: {}", plan.margin, reference.name, figures);
    case Verdict::worse:
      return fmt::format("more than {:g} % worse than {}: {}", plan.margin, reference.name, figures);
    case Verdict::better:
      return fmt::format("more than {:g} % better than {}: {}", plan.margin, reference.name, figures);
    case Verdict::diverged:
      return fmt::format("{} of {} runs diverged", arm.divergences, arm.ended);
    case Verdict::undecided:
      break;
  }
  if (reference.divergences > 0) return fmt::format("runs of {} itself diverged", reference.name);
  if (gap.pairs == 0) return "no pair of runs has ended yet";
  if (gap.pairs == 1) return figures + " in one pair of runs, which says nothing about noise: use more seeds";
  const std::int64_t needed = pairs_to_decide(gap, plan.margin, plan.alpha);
  return fmt::format("{} does not decide about {:g} %{}", figures, plan.margin,
                     needed > 0 ? fmt::format(": about {} pairs would", needed) : "");
}

void judge_arm(const ArmOutcome& reference, const ComparePlan& plan, ArmOutcome& arm) {
  const Pairs pairs = make_pairs(reference, arm, final_loss);
  arm.gap = measure_gap(pairs.percent(), plan.margin, plan.alpha);
  arm.gap_nats = pairs.nats();
  arm.sources = compare_sources(reference, arm, plan);
  if (arm.ended > 0) arm.divergence_bound = upper_bound(arm.divergences, arm.ended, plan.alpha);
  if (&arm == &reference)
    arm.verdict = Verdict::reference;
  else if (arm.divergences > reference.divergences)
    arm.verdict = Verdict::diverged;
  else if (reference.divergences == 0)
    arm.verdict = judge(arm.gap, plan.margin);
  arm.text = describe(arm, reference, plan);
}

}  // namespace

std::optional<double> final_loss(const RunMetrics& run) {
  std::vector<double> losses;
  for (const auto& [source, points] : run.evals)
    if (!points.empty()) losses.push_back(points.back().loss);
  if (losses.empty()) losses.push_back(final_train_loss(run));
  if (!std::isfinite(mean(losses))) return std::nullopt;
  return mean(losses);
}

std::vector<ArmOutcome> read_outcomes(const Comparison& comparison, const std::filesystem::path& folder) {
  std::vector<ArmOutcome> arms(comparison.plan.arms.size());
  for (std::size_t i = 0; i < arms.size(); ++i) arms[i].name = comparison.plan.arms[i].name;
  for (const Trial& trial : comparison.trials) {
    ArmOutcome& arm = arms[trial.arm];
    arm.trials.push_back(read_trial(trial, folder));
    add_health(arm.trials.back(), arm);
  }
  for (ArmOutcome& arm : arms) {
    double tokens = 0;
    for (const TrialOutcome& trial : arm.trials)
      if (!trial.metrics.train.empty()) tokens += static_cast<double>(trial.metrics.train.back().tokens);
    if (tokens > 0) arm.spikes_per_million_tokens = static_cast<double>(arm.spikes) / tokens * 1e6;
    add_cost(arms, arm);
    judge_arm(arms[0], comparison.plan, arm);
    std::vector<double> ratios;
    for (std::size_t i = 0; i < arm.trials.size(); ++i) {  // trials of all arms are in the same order
      if (!arm.trials[i].has_ended() || !arms[0].trials[i].has_ended()) continue;
      if (const auto ratio = relative_tokens(arms[0].trials[i].metrics, arm.trials[i].metrics))
        ratios.push_back(*ratio);
    }
    if (!ratios.empty()) arm.tokens_to_reference_loss = mean(ratios);
  }
  return arms;
}

}  // namespace tetrad
