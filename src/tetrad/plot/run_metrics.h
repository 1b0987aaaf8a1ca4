// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a training run left behind that a picture of it needs: metrics.jsonl and config.yaml of its folder.

#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tetrad {

struct TrainPoint {
  std::int64_t step = 0;
  std::int64_t tokens = 0;  //!< seen up to and with this step
  double loss = 0;          //!< nats per token; NaN if it was not finite
  double tokens_per_s = 0;  //!< 0 if unknown
  double grad_norm = 0;     //!< NaN if it was not finite or is not known
  double memory_bytes = 0;  //!< peak so far; 0 if unknown
  std::optional<double> joules = {};
  std::optional<double> device_busy = {};  //!< share of the time
  bool skipped = false;
};

struct EvalPoint {
  std::int64_t step = 0;
  std::int64_t tokens = 0;
  double loss = 0;  //!< nats per token; NaN if it was not finite
  std::optional<double> bits_per_byte;
  std::optional<double> excess_nats = {};
  std::optional<double> bf16_loss = {};  //!< with the forward pass in BF16, where that is another
};

/// Something about the run's health.
struct EventPoint {
  std::int64_t step = 0;
  std::string what, where, action;
};

struct CheckpointPoint {
  std::int64_t step = 0;
  double seconds = 0;
  double bytes = 0;
};

/// What one quantizer did to one operand in one step.
struct QuantPoint {
  std::int64_t step = 0;
  std::string layer;
  std::string operand;  //!< "fprop.x"
  double sqnr_db = 0;   //!< this and the next: NaN if not finite
  double amax = 0;
  double underflow = 0;
  double saturated = 0;
  double zero_scale_blocks = 0;
};

struct RunMetrics {
  std::string path;  //!< of the folder, as it was given
  std::string recipe;
  std::vector<std::string> sources;  //!< token files without .bin, as the configuration has them
  std::vector<TrainPoint> train;     //!< by step, ascending; never empty
  std::map<std::string, std::vector<EvalPoint>> evals;  //!< by source; by step, ascending
  std::vector<EventPoint> events = {};
  std::vector<CheckpointPoint> checkpoints = {};
  std::vector<QuantPoint> quantizers = {};
};

/// Reads the lines of a metrics.jsonl into `run`. The last line may be torn, since the run may be going on. A
/// step that comes again, after a run went back to a checkpoint, replaces what was there from it on. Throws
/// Error (bad input) with `name` and the line if there is anything else that is no metrics line.
void read_metrics(std::istream& lines, std::string_view name, RunMetrics& run);

/// Throws Error (bad input) if the folder is not that of a run that has made a step.
RunMetrics read_run(const std::filesystem::path& folder);

/// Mean of the finite training losses of the last twentieth of the steps; NaN if none is.
double final_train_loss(const RunMetrics& run);

/// Tokens per second, where they are known.
std::optional<double> median_speed(const RunMetrics& run);

/// What losses can be compared with.
struct References {
  std::optional<double> unigram_entropy;  //!< nats per token: a model that knows only how often tokens occur
  std::optional<double> entropy;          //!< nats per token: a perfect model of a synthetic source
};

/// Of the one source that all runs have; nothing if there are several or nothing is known about it.
References read_references(std::span<const RunMetrics> runs);

}  // namespace tetrad
