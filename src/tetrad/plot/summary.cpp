// SPDX-License-Identifier: Apache-2.0
#include "tetrad/plot/summary.h"
#include "tetrad/io/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tetrad/plot/text.h"

namespace tetrad {
namespace {

std::optional<double> relative_percent(double baseline, double value) {
  const double percent = 100 * (value - baseline) / baseline;
  return baseline > 0 && std::isfinite(percent) ? std::optional(percent) : std::nullopt;
}

/// The last evaluations of both after the same number of tokens.
std::optional<std::pair<EvalPoint, EvalPoint>> last_common(const std::vector<EvalPoint>& a,
                                                           const std::vector<EvalPoint>& b) {
  auto i = a.rbegin();
  auto j = b.rbegin();
  while (i != a.rend() && j != b.rend()) {
    if (i->tokens == j->tokens) return std::pair(*i, *j);
    (i->tokens > j->tokens ? i : j)++;
  }
  return std::nullopt;
}

std::optional<Gap> gap_between(const RunMetrics& baseline, const RunMetrics& run) {
  Gap gap;
  double sum = 0;
  std::int64_t count = 0;
  for (const auto& [source, evals] : baseline.evals) {
    const auto other = run.evals.find(source);
    if (other == run.evals.end()) continue;
    const auto common = last_common(evals, other->second);
    if (!common) continue;
    const std::optional<double> percent = relative_percent(common->first.loss, common->second.loss);
    if (!percent) return std::nullopt;
    sum += *percent;
    ++count;
    gap.tokens = common->first.tokens;
  }
  if (count > 0) {
    gap.percent = sum / static_cast<double>(count);
    gap.heldout = true;
    return gap;
  }
  const std::optional<double> percent = relative_percent(final_train_loss(baseline), final_train_loss(run));
  if (!percent) return std::nullopt;
  return Gap{.percent = *percent, .heldout = false, .tokens = run.train.back().tokens};
}

std::string fixed(double value, int decimals) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "not finite";
}

std::string optional_text(const std::optional<double>& value, int decimals) {
  return value ? fixed(*value, decimals) : "-";
}

using Row = std::vector<std::string>;

std::set<std::string> source_names(std::span<const RunSummary> runs) {
  std::set<std::string> names;
  for (const RunSummary& run : runs)
    for (const auto& [source, eval] : run.evals) names.insert(source);
  return names;
}

bool has_bits(std::span<const RunSummary> runs, const std::string& source) {
  return std::any_of(runs.begin(), runs.end(), [&](const RunSummary& run) {
    const auto found = run.evals.find(source);
    return found != run.evals.end() && found->second.bits_per_byte.has_value();
  });
}

std::vector<Row> table_rows(std::span<const RunSummary> runs, bool ascii) {
  const std::set<std::string> sources = source_names(runs);
  std::vector<Row> rows = {{"run", "recipe", "train"}};
  for (const std::string& source : sources) {
    const std::string of = sources.size() > 1 ? fmt::format(" {}", printable(source, ascii)) : "";
    rows[0].push_back("held-out" + of);
    if (has_bits(runs, source)) rows[0].push_back("bits/byte" + of);
  }
  rows[0].insert(rows[0].end(), {"gap", "tokens/s", "speed"});
  for (const RunSummary& run : runs) {
    Row row = {printable(run.path, ascii), printable(run.recipe, ascii), fixed(run.train_loss, 4)};
    for (const std::string& source : sources) {
      const auto found = run.evals.find(source);
      row.push_back(found == run.evals.end() ? "-" : fixed(found->second.loss, 4));
      if (has_bits(runs, source))
        row.push_back(found == run.evals.end() ? "-" : optional_text(found->second.bits_per_byte, 4));
    }
    if (&run == runs.data())
      row.emplace_back("baseline");
    else
      row.push_back(run.gap ? fmt::format("{:+.2f} %", run.gap->percent) : "-");
    row.push_back(run.tokens_per_s ? format_count(*run.tokens_per_s) : "-");
    row.push_back(run.speed ? fmt::format("{:.2f}{}", *run.speed, ascii ? "x" : "×") : "-");
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Names to the left, figures to the right.
std::string layout(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const Row& other : rows) width = std::max(width, character_count(other[column]));
      const std::string padding(width - character_count(row[column]), ' ');
      if (column > 0) line += "  ";
      line += column < 2 ? row[column] + padding : padding + row[column];
    }
    text += line + '\n';
  }
  return text;
}

/// What a reader would otherwise take the gap for.
std::string gap_notes(std::span<const RunSummary> runs, bool ascii) {
  std::string text;
  for (const RunSummary& run : runs.subspan(1)) {
    const std::string name = printable(run.path, ascii);
    if (!run.gap) continue;
    if (!run.gap->heldout)
      text += fmt::format("{}: the gap is that of the train loss, for want of a common evaluation\n", name);
    else if (std::max(run.tokens, runs[0].tokens) > run.gap->tokens)
      text += fmt::format("{}: the gap is that after {} tokens, the last evaluation that both runs have\n",
                          name, format_count(static_cast<double>(run.gap->tokens)));
    if (!run.gap->heldout && run.tokens != runs[0].tokens)
      text += fmt::format("{}: {} tokens, but {} in the first run\n", name,
                          format_count(static_cast<double>(run.tokens)),
                          format_count(static_cast<double>(runs[0].tokens)));
  }
  return text;
}

nlohmann::ordered_json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

std::vector<RunSummary> summarize(std::span<const RunMetrics> runs) {
  std::vector<RunSummary> summaries;
  for (const RunMetrics& run : runs) {
    RunSummary summary{.path = run.path,
                       .recipe = run.recipe,
                       .steps = run.train.back().step,
                       .tokens = run.train.back().tokens,
                       .train_loss = final_train_loss(run),
                       .evals = {},
                       .gap = {},
                       .tokens_per_s = median_speed(run),
                       .speed = {}};
    for (const auto& [source, evals] : run.evals) summary.evals.emplace(source, evals.back());
    if (summaries.empty())
      summary.gap = Gap{.percent = 0, .heldout = !run.evals.empty(), .tokens = summary.tokens};
    else
      summary.gap = gap_between(runs[0], run);
    const auto& baseline_speed = summaries.empty() ? summary.tokens_per_s : summaries[0].tokens_per_s;
    if (summary.tokens_per_s && baseline_speed) summary.speed = *summary.tokens_per_s / *baseline_speed;
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

std::string summary_table(std::span<const RunSummary> runs, const References& references, bool ascii) {
  std::string text = layout(table_rows(runs, ascii)) + gap_notes(runs, ascii);
  if (references.unigram_entropy)
    text += fmt::format(
        "unigram entropy of the text: {:.4f} nats (a model that knows only how often tokens occur)\n",
        *references.unigram_entropy);
  if (references.entropy)
    text += fmt::format("entropy of the source: {:.4f} nats (a perfect model)\n", *references.entropy);
  return text;
}

std::string to_json_text(std::span<const RunSummary> runs, const References& references) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RunSummary& run : runs) {
    nlohmann::ordered_json evals = nlohmann::ordered_json::object();
    nlohmann::ordered_json bits = nlohmann::ordered_json::object();
    for (const auto& [source, eval] : run.evals) {
      evals[source] = number_or_null(eval.loss);
      if (eval.bits_per_byte) bits[source] = number_or_null(eval.bits_per_byte);
    }
    nlohmann::ordered_json object = {{"path", run.path},
                                     {"recipe", run.recipe},
                                     {"steps", run.steps},
                                     {"tokens", run.tokens},
                                     {"train_loss", number_or_null(run.train_loss)},
                                     {"eval", evals}};
    if (!bits.empty()) object["bits_per_byte"] = bits;
    object["gap_percent"] = run.gap ? nlohmann::ordered_json(run.gap->percent) : nlohmann::ordered_json();
    if (run.gap) object["gap_of"] = run.gap->heldout ? "heldout" : "train";
    object["tokens_per_s"] = number_or_null(run.tokens_per_s);
    object["speed"] = number_or_null(run.speed);
    list.push_back(std::move(object));
  }
  nlohmann::ordered_json result = {{"runs", std::move(list)}};
  if (references.unigram_entropy) result["unigram_entropy"] = *references.unigram_entropy;
  if (references.entropy) result["entropy"] = *references.entropy;
  return json_text(result);
}

std::string headline(std::span<const RunSummary> runs) {
  if (runs.size() == 1)
    return fmt::format("{} steps, {} tokens; final train loss {}", runs[0].steps,
                       format_count(static_cast<double>(runs[0].tokens)), fixed(runs[0].train_loss, 4));
  std::string text;
  for (const RunSummary& run : runs.subspan(1)) {
    if (!run.gap) continue;
    // Runs of one recipe differ in something else, which their folders' names may tell.
    const bool by_recipe = run.recipe != runs[0].recipe;
    text += fmt::format("{}{}: {} loss {:+.2f} % against {}", text.empty() ? "" : "; ",
                        by_recipe ? run.recipe : run.path, run.gap->heldout ? "held-out" : "train",
                        run.gap->percent, by_recipe ? runs[0].recipe : runs[0].path);
  }
  return text;
}

}  // namespace tetrad
