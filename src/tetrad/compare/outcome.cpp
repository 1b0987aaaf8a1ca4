// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tetrad/compare/judgement.h"
#include "tetrad/compare/runner.h"
#include "tetrad/core/error.h"
#include "tetrad/model/flops.h"
#include "tetrad/plot/figure.h"

namespace tetrad {
namespace {

double mean(const std::vector<double>& values) {
  return values.empty()
             ? 0
             : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
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
    std::int64_t before = trial.trunk_tokens;
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

std::vector<SourceOutcome> last_losses(const ArmOutcome& arm) {
  struct Values {
    std::vector<double> losses, bits_per_byte, excess_nats, bf16_losses;
  };
  std::map<std::string, Values> sources;
  for (const TrialOutcome& trial : arm.trials) {
    for (const auto& [name, points] : trial.metrics.evals) {
      if (points.empty() || !std::isfinite(points.back().loss)) continue;
      Values& values = sources[name];
      values.losses.push_back(points.back().loss);
      if (points.back().bits_per_byte) values.bits_per_byte.push_back(*points.back().bits_per_byte);
      if (points.back().excess_nats) values.excess_nats.push_back(*points.back().excess_nats);
      if (points.back().bf16_loss) values.bf16_losses.push_back(*points.back().bf16_loss);
    }
  }
  std::vector<SourceOutcome> result;
  for (const auto& [name, values] : sources) {
    SourceOutcome source;
    source.source = name;
    source.loss = mean(values.losses);
    if (!values.bits_per_byte.empty()) source.bits_per_byte = mean(values.bits_per_byte);
    if (!values.excess_nats.empty()) source.excess_nats = mean(values.excess_nats);
    if (!values.bf16_losses.empty()) source.bf16_loss = mean(values.bf16_losses);
    result.push_back(std::move(source));
  }
  return result;
}

}  // namespace

std::vector<ArmOutcome> read_outcomes(const Comparison& comparison, const std::filesystem::path& folder,
                                      std::size_t reference) {
  std::vector<ArmOutcome> arms(comparison.plan.arms.size());
  for (std::size_t i = 0; i < arms.size(); ++i) arms[i].name = comparison.plan.arms[i].name;
  for (const Trial& trial : comparison.trials) {
    ArmOutcome& arm = arms[trial.arm];
    arm.trials.push_back(read_trial(trial, folder));
    arm.trials.back().trunk_tokens =
        comparison.trunk_steps() * trial.config.train.batch * trial.config.train.sequence;
    add_health(arm.trials.back(), arm);
  }
  for (ArmOutcome& arm : arms) {
    double tokens = 0;
    for (const TrialOutcome& trial : arm.trials)
      if (!trial.metrics.train.empty())
        tokens += static_cast<double>(trial.metrics.train.back().tokens - trial.trunk_tokens);
    if (tokens > 0) arm.spikes_per_million_tokens = static_cast<double>(arm.spikes) / tokens * 1e6;
    add_cost(arms, arm);
    arm.sources = last_losses(arm);
    std::vector<double> ratios;
    for (std::size_t i = 0; i < arm.trials.size(); ++i) {  // trials of all arms are in the same order
      if (!arm.trials[i].has_ended() || !arms[reference].trials[i].has_ended()) continue;
      if (const auto ratio = relative_tokens(arms[reference].trials[i].metrics, arm.trials[i].metrics))
        ratios.push_back(*ratio);
    }
    if (!ratios.empty()) arm.tokens_to_reference_loss = mean(ratios);
  }
  judge_arms(comparison, reference, arms);
  return arms;
}

}  // namespace tetrad
