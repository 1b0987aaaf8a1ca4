// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "tetrad/model/estimate.h"
#include "tetrad/plot/text.h"
#include "tetrad/train/preflight.h"
#include "tetrad/train/schedule.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostPoints = 1500;  //!< most points of a curve

/// JSON has no NaN: what is not a number is null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }
Json known(double value) { return value > 0 ? Json(value) : Json(); }
Json number(const std::optional<double>& value) { return value ? number(*value) : Json(); }

/// Curves have seven digits: a report is a fifth smaller, and metrics.jsonl has the full numbers.
Json point(double value) { return number(std::stod(fmt::format("{:.7g}", value))); }

Json gap_json(const ArmGap& arm) {
  const PairedGap& gap = arm.gap;
  const bool has_interval = gap.freedom > 0;
  return {{"pairs", gap.pairs},
          {"gap_percent", gap.pairs > 0 ? number(gap.mean) : Json()},
          {"gap_nats", gap.pairs > 0 ? number(arm.nats) : Json()},
          {"interval_percent", has_interval ? Json{gap.low, gap.high} : Json()},
          {"sd_percent", has_interval ? number(gap.deviation) : Json()},
          {"freedom", gap.freedom},
          {"differs", has_interval ? Json(gap.differs()) : Json()}};
}

Json verdict_json(const ArmOutcome& arm) {
  Json verdict = gap_json(arm.gap);
  const PairedGap& gap = arm.gap.gap;
  verdict["kind"] = name_of(arm.verdict);
  verdict["text"] = arm.text;
  for (const auto& [name, p] :
       {std::pair("p_zero", gap.p_zero), {"p_equivalent", gap.p_equivalent}, {"p_worse", gap.p_worse}})
    verdict[name] = gap.freedom > 0 ? number(p) : Json();
  return verdict;
}

Json windows_json(const ArmOutcome& arm) {
  Json windows = Json::array();
  for (const WindowOutcome& window : arm.windows) {
    Json& line = windows.emplace_back(gap_json(window.gap));
    line["name"] = window.name;
    line["title"] = window.title;
  }
  return windows;
}

Json facets_json(const ArmOutcome& arm) {
  Json facets = Json::array();
  for (const FacetOutcome& facet : arm.facets) {
    Json& line = facets.emplace_back(gap_json(facet.gap));
    line["lr_factor"] = facet.lr_factor;
    line["mix"] = facet.mix;
  }
  return facets;
}

Json sources_json(const ArmOutcome& arm) {
  Json sources = Json::array();
  for (const SourceOutcome& source : arm.sources) {
    Json line = gap_json(source.gap);
    line["source"] = source.source;
    line["loss"] = number(source.loss);
    line["bits_per_byte"] = number(source.bits_per_byte);
    line["excess_nats"] = number(source.excess_nats);
    line["bf16_loss"] = number(source.bf16_loss);
    sources.push_back(std::move(line));
  }
  return sources;
}

/// Every n-th point, and the last: means of what lies between would hide spikes.
std::vector<std::size_t> chosen_points(std::size_t count) {
  const std::size_t stride = std::max<std::size_t>(1, (count + kMostPoints - 1) / kMostPoints);
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < count; i += stride) chosen.push_back(i);
  if (count > 0 && chosen.back() != count - 1) chosen.push_back(count - 1);
  return chosen;
}

Json trial_json(const TrialOutcome& outcome) {
  Json tokens = Json::array();
  Json losses = Json::array();
  Json norms = Json::array();
  const auto& train = outcome.metrics.train;
  for (const std::size_t i : chosen_points(train.size())) {
    tokens.push_back(train[i].tokens);
    losses.push_back(point(train[i].loss));
    norms.push_back(point(train[i].grad_norm));
  }
  Json evals = Json::array();
  for (const auto& [source, points] : outcome.metrics.evals) {
    Json line = {{"source", source}, {"tokens", Json::array()}, {"loss", Json::array()}};
    for (const EvalPoint& point : points) {
      line["tokens"].push_back(point.tokens);
      line["loss"].push_back(number(point.loss));
    }
    evals.push_back(std::move(line));
  }
  Json events = Json::array();
  for (const EventPoint& event : outcome.metrics.events)
    events.push_back(
        {{"step", event.step}, {"what", event.what}, {"where", event.where}, {"action", event.action}});
  const Trial& trial = *outcome.trial;
  return {{"seed", trial.seed},     {"lr_factor", trial.lr_factor}, {"mix", trial.mix},
          {"folder", trial.folder}, {"ending", outcome.ending},     {"tokens", tokens},
          {"loss", losses},         {"grad_norm", norms},           {"evals", evals},
          {"events", events}};
}

/// The newest sample with the most quantizers, of the arm's first run: a late switch to another precision
/// ends some of them.
Json quantizer_json(const ArmOutcome& arm) {
  const auto& samples = arm.trials.front().metrics.quantizers;
  if (samples.empty()) return {};
  std::map<std::int64_t, std::size_t> counts;
  for (const QuantPoint& sample : samples) ++counts[sample.step];
  std::int64_t step = 0;
  for (const auto& [at, count] : counts)
    if (step == 0 || count >= counts[step]) step = at;
  Json cells = Json::array();
  for (const QuantPoint& sample : samples) {
    if (sample.step != step) continue;
    cells.push_back({{"layer", sample.layer},
                     {"operand", sample.operand},
                     {"sqnr_db", number(sample.sqnr_db)},
                     {"underflow", sample.underflow},
                     {"saturated", sample.saturated},
                     {"zero_scale_blocks", sample.zero_scale_blocks},
                     {"amax", number(sample.amax)}});
  }
  return {{"step", step}, {"cells", cells}};
}

Json gradient_json(const std::vector<GradientDistance>& gradients) {
  if (gradients.empty()) return {};
  Json layers = Json::array();
  for (std::size_t i = 1; i < gradients.size(); ++i)
    layers.push_back({{"name", gradients[i].parameter},
                      {"cosine", number(gradients[i].cosine)},
                      {"norm_ratio", number(gradients[i].norm_ratio)}});
  return {{"cosine", number(gradients[0].cosine)},
          {"norm_ratio", number(gradients[0].norm_ratio)},
          {"layers", layers}};
}

Json fixed_weights_json(const std::optional<LossDistance>& losses) {
  if (!losses) return {};
  return {{"loss", number(losses->loss)},
          {"difference_nats", number(losses->difference.mean)},
          {"standard_error", number(losses->difference.error)},
          {"noise", losses->difference.is_noise()},
          {"sequences", losses->sequences},
          {"tokens", losses->tokens}};
}

Json recovery_json(const std::optional<Recovery>& recovery) {
  if (!recovery) return {};
  return {{"nan", recovery->nan},
          {"nan_ok", recovery->nan_ok},
          {"resume", recovery->resume},
          {"resume_ok", recovery->resume_ok}};
}

Json checks_json(const ArmProbes& arm, const ArmProbes& of_reference) {
  const std::vector<CheckResult> nothing;
  const std::vector<CheckResult>& checks = arm.checks ? *arm.checks : nothing;
  const std::vector<CheckResult>& reference = of_reference.checks ? *of_reference.checks : nothing;
  Json lines = Json::array();
  for (const CheckResult& check : checks) {
    const auto other = std::ranges::find(reference, check.name, &CheckResult::name);
    Json& line = lines.emplace_back(json_of(check));
    line["reference"] = other == reference.end() ? Json() : number(other->value);
  }
  return lines;
}

Json cost_json(const ArmOutcome& arm, const ArmOutcome& reference, const ReportContext& context) {
  constexpr double kSecondsPerHour = 3600;
  Json price;
  if (context.price_per_hour && arm.tokens_per_s > 0)
    price = *context.price_per_hour / kSecondsPerHour / arm.tokens_per_s * 1e6;
  const std::optional<Machine>& machine = arm.trials.front().machine;
  return {{"tokens_per_s", known(arm.tokens_per_s)},
          {"speed", reference.tokens_per_s > 0 ? known(arm.tokens_per_s / reference.tokens_per_s) : Json()},
          {"tflops", known(arm.tflops)},
          {"utilisation", number(arm.utilisation)},
          {"peak_name", machine ? Json(machine->peak_name) : Json()},
          {"memory_bytes", known(arm.memory_bytes)},
          {"checkpoint_seconds", known(arm.checkpoint_seconds)},
          {"checkpoint_bytes", known(arm.checkpoint_bytes)},
          {"joules_per_token", number(arm.joules_per_token)},
          {"device_busy", number(arm.device_busy)},
          {"price_per_million_tokens", price},
          {"tokens_to_reference_loss", number(arm.tokens_to_reference_loss)}};
}

Json arm_json(const ArmOutcome& arm, const ArmOutcome& reference, const NamedOverrides& definition,
              const ArmProbes& probes, const ArmProbes& reference_probes, const ReportContext& context) {
  Json trials = Json::array();
  for (const TrialOutcome& trial : arm.trials) trials.push_back(trial_json(trial));
  return {{"name", arm.name},
          {"description", fmt::format("{}", fmt::join(definition.overrides, ", "))},
          {"is_reference", &arm == &reference},
          {"verdict", verdict_json(arm)},
          {"windows", windows_json(arm)},
          {"facets", facets_json(arm)},
          {"divergences",
           {{"count", arm.divergences}, {"of", arm.ended}, {"bound", number(arm.divergence_bound)}}},
          {"spikes", {{"count", arm.spikes}, {"per_million_tokens", arm.spikes_per_million_tokens}}},
          {"skipped_steps", arm.skipped_steps},
          {"heldout", sources_json(arm)},
          {"checks", checks_json(probes, reference_probes)},
          {"gradient", gradient_json(probes.gradients)},
          {"fixed_weights", fixed_weights_json(probes.losses)},
          {"quantizer", quantizer_json(arm)},
          {"cost", cost_json(arm, reference, context)},
          {"recovery", recovery_json(probes.recovery)},
          {"trials", trials}};
}

/// What the trials ran on; several machines are all named.
Json hardware_json(const std::vector<ArmOutcome>& arms) {
  std::vector<std::string> backends;
  std::vector<std::string> devices;
  int threads = 0;
  const auto add = [](std::vector<std::string>& names, const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const ArmOutcome& arm : arms)
    for (const TrialOutcome& trial : arm.trials) {
      if (!trial.machine) continue;
      add(backends, trial.machine->backend);
      add(devices, trial.machine->device);
      threads = std::max(threads, trial.machine->threads);
    }
  return {{"backend", fmt::format("{}", fmt::join(backends, ", "))},
          {"device", fmt::format("{}", fmt::join(devices, ", "))},
          {"threads", threads}};
}

Json lock_json(const Comparison& comparison) {
  Json differences = Json::array();
  for (const Difference& difference : comparison.lock.differences) {
    Json values = Json::object();
    for (std::size_t i = 0; i < difference.values.size(); ++i)
      values[comparison.plan.arms[i].name] = difference.values[i];
    differences.push_back({{"key", difference.key}, {"values", values}});
  }
  std::set<std::uint64_t> seeds;
  std::set<double> rates;
  Json mixes = Json::array();
  for (const Trial& trial : comparison.trials) {
    seeds.insert(trial.seed);
    rates.insert(trial.config.optim.lr);
  }
  for (const NamedOverrides& mix : comparison.plan.mixes)
    mixes.push_back(mix.name.empty() ? "as configured" : mix.name);
  const auto texts = [](const auto& values) {
    Json list = Json::array();
    for (const auto& value : values) list.push_back(fmt::format("{}", value));
    return list;
  };
  return {{"common_sha256", comparison.lock.common_sha256},
          {"common_keys", comparison.lock.common_keys},
          {"differences", differences},
          {"axes",
           {{{"key", "train.seed"}, {"values", texts(seeds)}},
            {{"key", "optim.lr"}, {"values", texts(rates)}},
            {{"key", "data"}, {"values", mixes}}}}};
}

Json trunk_json(const Comparison& comparison) {
  if (comparison.trunks.empty()) return {};
  const TrainConfig& train = comparison.trials.front().config.train;
  Json given = Json::array();
  for (const GivenTrunk& trunk : comparison.plan.trunks) given.push_back(trunk.point);
  return {{"steps", comparison.trunk_steps()},
          {"tokens", comparison.trunk_steps() * train.batch * train.sequence},
          {"given", given}};
}

Json looks_json(const ComparePlan& plan) {
  const auto look = std::ssize(plan.looked);
  return {{"planned", plan.looks},
          {"before", plan.looked},
          {"alpha", alpha_of_look(plan.alpha, plan.looks, look)},
          {"alpha_spent", alpha_spent(plan.alpha, plan.looks, look)}};
}

}  // namespace

Json describe_beginning(const Json& command, const Dataset& dataset) {
  Json sources = Json::array();
  for (const SourceUse& use : source_uses(dataset))
    sources.push_back({{"source", use.name},
                       {"tokens", use.tokens},
                       {"epochs", number(use.epochs)},
                       {"heldout_tokens", use.heldout_tokens ? Json(*use.heldout_tokens) : Json()}});
  return {{"command", command}, {"data", sources}};
}

Json make_report(const Comparison& comparison, const std::vector<ArmOutcome>& arms,
                 const std::vector<ArmProbes>& probes, const ReportContext& context) {
  const Config& config = comparison.trials.front().config;
  Json arm_list = Json::array();
  std::string names;
  bool complete = true;
  std::vector<std::size_t> order(arms.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t reference = context.reference;
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(reference),
              order.begin() + static_cast<std::ptrdiff_t>(reference) + 1);
  for (const std::size_t i : order) {
    arm_list.push_back(
        arm_json(arms[i], arms[reference], comparison.plan.arms[i], probes[i], probes[reference], context));
    names += (names.empty() ? "" : ", ") + arms[i].name;
    complete &= std::ranges::all_of(arms[i].trials, &TrialOutcome::has_ended);
  }
  const std::int64_t steps = step_count(config.train);
  return {{"format", 1},
          {"title", config.model.name + ": " + names},
          {"created", context.created},
          {"build", context.build},
          {"hardware", hardware_json(arms)},
          {"model",
           {{"name", config.model.name},
            {"parameters", parameter_count(config.model)},
            {"pattern", config.model.pattern},
            {"vocab", config.model.vocab}}},
          {"training",
           {{"steps", steps},
            {"tokens", steps * config.train.batch * config.train.sequence},
            {"batch", config.train.batch},
            {"sequence", config.train.sequence},
            {"schedule", config.schedule.kind},
            {"lr", config.optim.lr}}},
          {"data", context.origin.value("data", Json::array())},
          {"command", context.origin.value("command", Json::array())},
          {"trunk", trunk_json(comparison)},
          {"reference", arms[reference].name},
          {"primary", arms[reference].windows.front().title},
          {"looks", looks_json(comparison.plan)},
          {"margin_percent", comparison.plan.margin},
          {"alpha", comparison.plan.alpha},
          {"complete", complete},
          {"lock", lock_json(comparison)},
          {"arms", arm_list}};
}

std::string summary_text(const Comparison& comparison, const std::vector<ArmOutcome>& arms) {
  std::size_t width = 0;
  for (const ArmOutcome& arm : arms) width = std::max(width, arm.name.size());
  std::string text;
  for (const ArmOutcome& arm : arms)
    text += fmt::format("{:<{}}  {:<10}  {}\n", arm.name, width, name_of(arm.verdict), arm.text);
  text += fmt::format("\nCompared: {}.\n", arms.front().windows.front().title);
  const ComparePlan& plan = comparison.plan;
  if (const auto look = std::ssize(plan.looked); look >= plan.looks)
    text += fmt::format(
        "These verdicts were looked at {} times before runs were added, {} times more than was planned: the "
        "probability that any of them was wrong is up to {:.1f} %, not {:.1f} %.\n",
        look, look - plan.looks + 1, 100 * alpha_spent(plan.alpha, plan.looks, look), 100 * plan.alpha);
  return text;
}

}  // namespace tetrad
