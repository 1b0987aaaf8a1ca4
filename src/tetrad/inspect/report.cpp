// SPDX-License-Identifier: Apache-2.0
#include "tetrad/inspect/report.h"
#include "tetrad/io/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kWorstShown = 10;

/// The width of the longest name, for a column.
std::size_t name_width(const Inspection& inspection) {
  std::size_t width = 12;
  for (const std::string& layer : inspection.layers) width = std::max(width, layer.size());
  return width;
}

std::string_view mark(Level now) {
  switch (now) {
    case Level::bf16:
      return "*";
    case Level::fp8:
      return "+";
    default:
      return " ";
  }
}

/// Layers down, operands across; the darker, the nearer to the worst.
std::string map_text(const Inspection& inspection) {
  using Cell = std::pair<std::string, Operand>;
  std::map<Cell, const OperandReport*> cells;
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -lowest;
  for (const OperandReport& report : inspection.worst) {
    cells[{report.stats.layer, report.stats.operand}] = &report;
    const double sqnr = report.stats.stats.sqnr_db();
    if (!std::isfinite(sqnr)) continue;
    lowest = std::min(lowest, sqnr);
    highest = std::max(highest, sqnr);
  }
  const auto shade = [&](double sqnr) {
    constexpr std::array<std::string_view, 4> kShades = {"█", "▓", "▒", "░"};
    if (!std::isfinite(sqnr) || highest == lowest) return std::string_view(" ");
    return kShades[static_cast<std::size_t>(std::min(3.0, 4 * (sqnr - lowest) / (highest - lowest)))];
  };
  const std::size_t width = name_width(inspection);
  std::string text = fmt::format("{:<{}} ", "", width);
  for (int i = 0; i < kOperands; ++i) text += fmt::format("{:>10}", name_of(static_cast<Operand>(i)));
  text += '\n';
  for (const std::string& layer : inspection.layers) {
    std::string row;
    std::string_view kept = " ";
    for (int i = 0; i < kOperands; ++i) {
      const auto found = cells.find({layer, static_cast<Operand>(i)});
      if (found == cells.end()) {
        row += fmt::format("{:>10}", "-");
        continue;
      }
      const double sqnr = found->second->stats.stats.sqnr_db();
      row += fmt::format("{:>9.1f}{}", sqnr, shade(sqnr));
      kept = mark(found->second->now);
    }
    text += fmt::format("{:<{}}{}{}\n", layer, width, kept, row);
  }
  return text;
}

std::string worst_text(const Inspection& inspection) {
  const std::size_t width = name_width(inspection);
  std::string text = fmt::format("{:<{}}  {:<8} {:>8} {:>9} {:>10} {:>11}\n", "", width, "operand", "SQNR dB",
                                 "to zero", "saturated", "amax");
  for (std::size_t i = 0; i < std::min(kWorstShown, inspection.worst.size()); ++i) {
    const OperandReport& report = inspection.worst[i];
    const QuantStats& stats = report.stats.stats;
    text += fmt::format("{:<{}}{} {:<8} {:>8.1f} {:>7.2f} % {:>8.2f} % {:>11.4g}\n", report.stats.layer,
                        width, mark(report.now), name_of(report.stats.operand), stats.sqnr_db(),
                        100 * stats.flushed_fraction(), 100 * stats.saturated_fraction(), stats.amax);
  }
  return text;
}

/// "12.3 ± 0.4", and ~ if that is noise.
std::string gain_text(const Estimate& gain, double factor, int digits) {
  return fmt::format("{}{:.{}f} ± {:.{}f}", gain.is_noise() ? "~ " : "", factor * gain.mean, digits,
                     factor * gain.error, digits);
}

std::string kilobytes(double bytes) { return fmt::format("{:.1f}", bytes / 1000); }

std::string units_text(const Inspection& inspection) {
  const std::size_t width = name_width(inspection);
  const double percent = 100 / inspection.nothing.gradient_error.mean;
  const double milli = 1000;
  std::vector<const UnitReport*> order;
  for (const UnitReport& report : inspection.units) order.push_back(&report);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [](const UnitReport* report) { return report->bf16.gradient_error.mean; });
  std::string text = fmt::format("{0:<{1}} {0:<9} {2:^30}   {3:^30}   {4:>6}  {5:>9}\n", "", width,
                                 "BF16 takes away", "FP8 takes away", "of the", "kB more");
  text += fmt::format("{:<{}} {:<9} {:>15} {:>14}   {:>15} {:>14}   {:>6}  {:>9}\n", "", width, "today",
                      "gradient, %", "loss, mnat", "gradient, %", "loss, mnat", "FLOP", "BF16/FP8");
  for (const UnitReport* report : order) {
    const auto gains = [&](const Gain& gain) {
      return fmt::format("{:>15} {:>14}", gain_text(gain.gradient_error, percent, 1),
                         gain_text(gain.loss, milli, 2));
    };
    text += fmt::format(
        "{:<{}} {:<9} {}   {}   {:>4.1f} %  {:>9}\n", report->unit.name, width, name_of(report->now),
        gains(report->bf16), report->fp8 ? gains(*report->fp8) : std::string(30, ' '),
        100 * report->unit.share,
        report->fp8 ? fmt::format("{}/{}", kilobytes(report->bf16_bytes), kilobytes(report->fp8_bytes))
                    : kilobytes(report->bf16_bytes));
  }
  return text;
}

/// "0.0123 ± 0.0004", relative to the squared norm, and ~ if a bias is noise.
std::string noise_text(const Estimate& noise) { return gain_text(noise, 1, 5); }

/// The backward pass of each unit, the largest bias first.
std::string backward_text(const Inspection& inspection) {
  const std::size_t width = name_width(inspection);
  std::vector<const UnitReport*> order;
  for (const UnitReport& report : inspection.units) order.push_back(&report);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [](const UnitReport* report) { return report->backward->bias.mean; });
  std::string text = fmt::format("{:<{}} {:<9} {:>22} {:>20}\n", "", width, "today", "bias²", "variance");
  for (const UnitReport* report : order)
    text += fmt::format("{:<{}} {:<9} {:>22} {:>20}\n", report->unit.name, width, name_of(report->now),
                        noise_text(report->backward->bias), noise_text(report->backward->variance));
  return text;
}

/// What is kept today, and what it would lose without one of them.
std::string kept_text(const Inspection& inspection) {
  const double percent = 100 / inspection.nothing.gradient_error.mean;
  std::string text;
  for (const UnitReport& report : inspection.units) {
    if (!report.in_todays_set) continue;
    text += fmt::format("{:<{}} {:<9} {:>15} {:>14}\n", report.unit.name, name_width(inspection),
                        name_of(report.now), gain_text(report.in_todays_set->gradient_error, percent, 1),
                        gain_text(report.in_todays_set->loss, 1000, 2));
  }
  return text;
}

std::string sets_text(const Inspection& inspection) {
  std::string text =
      fmt::format("{:<14} {:>20} {:>18} {:>8} {:>9} {:>9} {:>12} {:>22} {:>20}\n", "", "gradient error",
                  "loss, mnat", "cosine", "BF16", "FP8", "weights, kB", "backward: bias²", "variance");
  const auto add = [&](std::string_view name, const SetReport& set) {
    text += fmt::format("{:<14} {:>20} {:>18} {:>8.4f} {:>7.1f} % {:>7.1f} % {:>12} {:>22} {:>20}\n", name,
                        fmt::format("{:.5f} ± {:.5f}", set.gradient_error.mean, set.gradient_error.error),
                        fmt::format("{:.2f} ± {:.2f}", 1000 * set.loss.mean, 1000 * set.loss.error),
                        set.cosine.mean, 100 * set.bf16_share, 100 * set.fp8_share,
                        kilobytes(set.weight_bytes), set.backward ? noise_text(set.backward->bias) : "-",
                        set.backward ? noise_text(set.backward->variance) : "-");
  };
  add("nothing kept", inspection.nothing);
  add("today", inspection.today);
  add("suggested", inspection.suggested);
  return text;
}

std::string verdict_text(const Inspection& inspection) {
  const bool is_empty = inspection.suggested.kept.match.empty() && inspection.suggested.kept.fp8.empty();
  if (inspection.verdict == Advice::keep_today)
    return is_empty ? "Keep what you have: no layer alone gains more than noise within the budget."
                    : "Keep what you have: the suggestion is not better than today's list.";
  std::string text =
      inspection.verdict == Advice::as_good
          ? "Use the suggestion: it is as good as today's list, within noise, and costs less."
      : inspection.gain.gradient_error.is_noise()
          ? "Use the suggestion: its gradients are as good as with today's list, its loss is less."
          : "Use the suggestion: its gradients are closer to those of BF16 than with today's list.";
  const Estimate& loss = inspection.gain.loss;
  if (loss.is_below_noise())
    text += fmt::format(
        "\nAt first its loss is {:.2f} ± {:.2f} mnat larger: weights tend to fit the precision that "
        "they were trained in.",
        -1000 * loss.mean, 1000 * loss.error);
  return text;
}

/// What the backward pass adds by itself.
std::string noise_section(const Inspection& inspection, const InspectOptions& options) {
  if (!inspection.nothing.backward)
    return "\nNOISE OF THE BACKWARD PASS: not measured, because the operands of fprop are transformed.\n";
  return fmt::format(
      "\nNOISE OF THE BACKWARD PASS: {} draws of random numbers, beside the same forward pass with a "
      "backward pass in BF16.\nIf nothing is kept, the gradient has a bias² of {} of its squared norm and a "
      "variance of {}.\nOf the gradient of its own weights, each {} has:\n{}",
      options.draws, noise_text(inspection.nothing.backward->bias),
      noise_text(inspection.nothing.backward->variance), options.by_block ? "block" : "layer",
      backward_text(inspection));
}

std::string quoted_list(const std::vector<std::string>& patterns) { return json_text(Json(patterns)); }

std::string number_or_auto(const std::optional<std::int64_t>& number) {
  return number ? std::to_string(*number) : "auto";
}

}  // namespace

std::string report_text(const InspectedRun& run, const Inspection& inspection,
                        const InspectOptions& options) {
  std::string text = fmt::format(
      "{}: step {} of {}, forward {}, backward {}\n{} microbatches of {} tokens; losses are those of {} "
      "{} sequences, {:.4f} nats in BF16\n",
      run.checkpoint.string(), run.step, run.steps, inspection.forward, inspection.backward,
      run.data.training.size(), run.data.training[0].inputs.size(), inspection.sequences,
      run.data.heldout.empty() ? "training" : "held-out", inspection.reference_loss);
  text +=
      "\nWHAT IS LOST: signal to quantization noise in dB, if nothing were kept (today * stays in BF16, + in "
      "FP8)\n";
  text += map_text(inspection);
  text += fmt::format("\nThe worst:\n{}", worst_text(inspection));
  text += fmt::format(
      "\nSENSITIVITY: beside BF16, nothing kept has a gradient error of {:.5f}, and its loss is {:+.2f} mnat "
      "off.\n"
      "One {} kept alone takes away (± standard error; ~ within noise):\n",
      inspection.nothing.gradient_error.mean, 1000 * inspection.nothing.loss.mean,
      options.by_block ? "block" : "layer");
  text += units_text(inspection);
  if (const std::string kept = kept_text(inspection); !kept.empty())
    text +=
        "\nToday's list would lose without one of its own (gradient, % of the same; loss, mnat):\n" + kept;
  text += noise_section(inspection, options);
  if (inspection.verdict == Advice::none)
    return text + fmt::format(
                      "\nNo suggestion: {} microbatches are too few to tell gains from chance. Measure on {} "
                      "or more (--batches).\n",
                      run.data.training.size(), kFewestValues);
  text +=
      fmt::format("\nSUGGESTION with up to {:g} % of the linear layers' FLOP in BF16 (FP8 counts half):\n",
                  100 * options.budget);
  text += fmt::format("BF16 {}\nFP8  {}\n\n", quoted_list(inspection.suggested.kept.match),
                      quoted_list(inspection.suggested.kept.fp8));
  text += fmt::format("Measured together:\n{}", sets_text(inspection));
  text += fmt::format("\n{}\n\n{}", verdict_text(inspection), report_yaml(run, inspection));
  return text;
}

std::string report_yaml(const InspectedRun& run, const Inspection& inspection) {
  const HighPrecisionConfig& kept = inspection.recommended().kept;
  return fmt::format("precision:\n{}  high_precision: {{first: {}, last: {}, match: {}, fp8: {}}}\n",
                     run.as_trained ? "" : fmt::format("  recipe: {}\n", run.config.precision.recipe),
                     number_or_auto(kept.first), number_or_auto(kept.last), quoted_list(kept.match),
                     quoted_list(kept.fp8));
}

}  // namespace tetrad
