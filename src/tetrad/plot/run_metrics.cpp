// SPDX-License-Identifier: Apache-2.0
#include "tetrad/plot/run_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tetrad/config/config.h"
#include "tetrad/core/error.h"
#include "tetrad/data/token_metadata.h"
#include "tetrad/io/strict_json.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestLoss = 1e30;  // as good as infinite, and sums of these still are numbers
constexpr JsonLimits kLineLimits{.bytes = 1 << 16, .depth = 8};

/// Loss lines carry null for what was not finite.
double loss_of(const Json& line, const std::string& where) {
  const auto found = line.find("loss");
  TETRAD_CHECK(found != line.end() && (found->is_number() || found->is_null()),
               "{}: loss must be a number or null; is this a metrics.jsonl of `tetrad train`?", where);
  const double loss = found->is_null() ? kNothing : found->get<double>();
  return std::abs(loss) <= kLargestLoss ? loss : kNothing;
}

std::int64_t count_of(const Json& line, const char* key, const std::string& where) {
  return checked_integer(member_of(line, key), fmt::format("{}: {}", where, key), 0,
                         std::numeric_limits<std::int64_t>::max());
}

double number_of(const Json& line, const char* key, double otherwise) {
  const Json& value = member_of(line, key);
  return value.is_number() ? value.get<double>() : otherwise;
}

/// Drops what a repeated stretch of steps replaces and appends.
template <typename Point>
void add_point(std::vector<Point>& points, const Point& point, const std::string& where) {
  while (!points.empty() && points.back().step >= point.step) points.pop_back();
  TETRAD_CHECK(points.empty() || points.back().tokens <= point.tokens,
               "{}: {} tokens at step {}, but {} at step {} before it", where, point.tokens, point.step,
               points.empty() ? 0 : points.back().tokens, points.empty() ? 0 : points.back().step);
  points.push_back(point);
}

void add_train_line(const Json& line, const std::string& where, RunMetrics& run) {
  TrainPoint point;
  point.step = count_of(line, "step", where);
  point.tokens = count_of(line, "tokens", where);
  point.loss = loss_of(line, where);
  point.tokens_per_s = std::max(number_of(line, "tokens_per_s", 0), 0.0);
  point.grad_norm = number_of(line, "grad_norm", kNothing);
  point.memory_bytes = number_of(line, "memory_bytes", 0);
  if (const double joules = number_of(line, "joules", kNothing); !std::isnan(joules)) point.joules = joules;
  if (const double busy = number_of(line, "device_busy", kNothing); !std::isnan(busy))
    point.device_busy = busy;
  point.skipped = member_of(line, "skipped") == true;
  add_point(run.train, point, where);
}

void add_eval_line(const Json& line, const std::string& where, RunMetrics& run) {
  const Json& source = member_of(line, "source");
  TETRAD_CHECK(source.is_string(), "{}: source must be a name", where);
  EvalPoint point{.step = count_of(line, "step", where),
                  .tokens = count_of(line, "tokens", where),
                  .loss = loss_of(line, where),
                  .bits_per_byte = {}};
  if (const Json& bits = member_of(line, "bits_per_byte"); bits.is_number())
    point.bits_per_byte = bits.get<double>();
  if (const Json& excess = member_of(line, "excess_nats"); excess.is_number())
    point.excess_nats = excess.get<double>();
  if (const Json& loss = member_of(line, "bf16_loss"); loss.is_number()) point.bf16_loss = loss.get<double>();
  add_point(run.evals[source.get<std::string>()], point, where);
}

std::string text_of(const Json& line, const char* key) {
  const Json& value = member_of(line, key);
  return value.is_string() ? value.get<std::string>() : "";
}

void add_event_line(const Json& line, const std::string& where, RunMetrics& run) {
  run.events.push_back({count_of(line, "step", where), text_of(line, "what"), text_of(line, "where"),
                        text_of(line, "action")});
}

void add_checkpoint_line(const Json& line, const std::string& where, RunMetrics& run) {
  run.checkpoints.push_back(
      {count_of(line, "step", where), number_of(line, "seconds", 0), number_of(line, "bytes", 0)});
}

void add_quant_line(const Json& line, const std::string& where, RunMetrics& run) {
  run.quantizers.push_back({.step = count_of(line, "step", where),
                            .layer = text_of(line, "layer"),
                            .operand = text_of(line, "gemm") + "." + text_of(line, "operand"),
                            .sqnr_db = number_of(line, "sqnr_db", kNothing),
                            .amax = number_of(line, "amax", kNothing),
                            .underflow = number_of(line, "underflow", 0),
                            .saturated = number_of(line, "saturated", 0),
                            .zero_scale_blocks = number_of(line, "zero_scale_blocks", 0)});
}

void add_line(std::string_view text, const std::string& where, RunMetrics& run) {
  const Json line = parse_strict_json(text, where, kLineLimits);
  const Json& kind = member_of(line, "kind");
  TETRAD_CHECK(kind.is_string(), "{}: no metrics line: it has no \"kind\"", where);
  if (kind == "train") add_train_line(line, where, run);
  if (kind == "eval") add_eval_line(line, where, run);
  if (kind == "event") add_event_line(line, where, run);
  if (kind == "checkpoint") add_checkpoint_line(line, where, run);
  if (kind == "quant") add_quant_line(line, where, run);
}

/// A file that a run in progress appends to is read, not mapped: resuming a run may shorten it.
std::ifstream open_regular(const std::filesystem::path& path) {
  std::error_code ignored;
  TETRAD_CHECK(std::filesystem::is_regular_file(path, ignored),
               "{:?}: no such file; name the folder that `tetrad train --out` wrote", path.native());
  std::ifstream file(path, std::ios::binary);
  TETRAD_CHECK(file.is_open(), "{:?}: cannot be read", path.native());
  return file;
}

}  // namespace

void read_metrics(std::istream& lines, std::string_view name, RunMetrics& run) {
  std::string text;
  for (std::int64_t number = 1; std::getline(lines, text); ++number) {
    if (text.empty()) continue;
    try {
      add_line(text, fmt::format("{}:{}", name, number), run);
    } catch (const Error&) {
      // Torn: the writer ends every line, so what has no end was not written to its end.
      if (!lines.eof()) throw;
    }
  }
}

RunMetrics read_run(const std::filesystem::path& folder) {
  RunMetrics run;
  run.path = folder.native();
  const std::filesystem::path metrics = folder / "metrics.jsonl";
  std::ifstream lines = open_regular(metrics);
  const std::string name = fmt::format("{:?}", metrics.native());
  read_metrics(lines, name, run);
  TETRAD_CHECK(!run.train.empty(), "{}: no training step in it yet", name);

  const std::filesystem::path config_file = folder / "config.yaml";
  open_regular(config_file);
  const Config config = load_config(std::array{config_file.native()}, {});
  run.recipe = config.precision.recipe;
  for (const auto& [source, values] : config.data.sources) run.sources.push_back(values.path);
  return run;
}

double final_train_loss(const RunMetrics& run) {
  const std::size_t last = (run.train.size() + 19) / 20;
  double sum = 0;
  std::int64_t count = 0;
  for (const TrainPoint& point : std::span(run.train).last(last)) {
    if (!std::isfinite(point.loss)) continue;
    sum += point.loss;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : kNothing;
}

std::optional<double> median_speed(const RunMetrics& run) {
  std::vector<double> speeds;
  for (const TrainPoint& point : run.train)
    if (point.tokens_per_s > 0) speeds.push_back(point.tokens_per_s);
  if (speeds.empty()) return std::nullopt;
  std::sort(speeds.begin(), speeds.end());
  return (speeds[(speeds.size() - 1) / 2] + speeds[speeds.size() / 2]) / 2;
}

References read_references(std::span<const RunMetrics> runs) {
  for (const RunMetrics& run : runs)
    if (run.sources.size() != 1 || run.sources != runs[0].sources) return {};
  if (runs.empty()) return {};
  const std::filesystem::path metadata_file = runs[0].sources[0] + ".json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(metadata_file, ignored)) return {};
  const TokenMetadata metadata = read_token_metadata(metadata_file);
  return {.unigram_entropy = metadata.unigram_entropy, .entropy = metadata.entropy};
}

}  // namespace tetrad
