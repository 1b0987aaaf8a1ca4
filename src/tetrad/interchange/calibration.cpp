// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/calibration.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tetrad/core/error.h"
#include "tetrad/data/dataset.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

bool is_token_file(const std::string& name) {
  std::error_code ignored;
  return fs::exists(token_file_name(name) + ".bin", ignored);
}

/// Servers quantize inputs with their mean.
PrecisionConfig without_centring(PrecisionConfig precision) {
  precision.centre = false;
  return precision;
}

/// Notes what passed through, one sequence at a time.
class Observer {
 public:
  explicit Observer(LoadedModel& model)
      : model_(model), recipe_(without_centring(model.config().precision), model.config().model.blocks()) {}

  void run(std::span<const std::int32_t> tokens) {
    Pass pass = model_.pass();
    pass.recipe = &recipe_;
    pass.telemetry = true;
    losses_.resize(tokens.size());
    model_.decoder().evaluate(pass, tokens, tokens, losses_);  // the losses do not matter
    for (const OperandStats& stats : pass.stats) {
      if (stats.operand != Operand::fprop_x) continue;
      TETRAD_CHECK(std::isfinite(stats.stats.amax) && stats.stats.non_finite == 0,
                   "{} is given values that are not finite: this model cannot be served", stats.layer);
      float& largest = amax_[stats.layer];
      largest = std::max(largest, stats.stats.amax);
    }
  }

  InputAmax take() { return std::move(amax_); }

 private:
  LoadedModel& model_;
  Recipe recipe_;
  InputAmax amax_;
  std::vector<float> losses_;
};

void observe_tokens(Observer& observer, LoadedModel& model, const std::string& name,
                    const CalibrationOptions& options) {
  const TokenSequences data(name, model.sequence(), "calibration");
  data.file().validate(model.decoder().backend().threads(), model.config().model.vocab);
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(model.sequence()));
  std::vector<std::int32_t> targets(inputs.size());
  const std::int64_t count = std::min(options.sequences, data.count());
  for (std::int64_t i = 0; i < count; ++i) {
    data.read(i, inputs, targets);
    observer.run(inputs);
    if (options.progress) options.progress(i + 1, count);
  }
}

void observe_text(Observer& observer, LoadedModel& model, const std::string& path,
                  const CalibrationOptions& options) {
  const MappedFile file(path);
  const auto length = static_cast<std::size_t>(model.sequence());
  constexpr std::size_t kTokenBytes = 16;  // no tokens stand for more on average
  const auto sequences = std::min(static_cast<std::size_t>(options.sequences), file.bytes().size());
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              std::min(file.bytes().size(), length * kTokenBytes * sequences));
  const std::vector<std::int32_t> tokens = model.tokenizer().encode(text);
  TETRAD_CHECK(tokens.size() >= length, "{} has {} tokens, less than one sequence of {}: give a longer text",
               path, tokens.size(), length);
  for (const std::int32_t token : tokens)
    TETRAD_CHECK(token < model.config().model.vocab,
                 "the tokenizer has a token {}, the model only {}: they do not belong together", token,
                 model.config().model.vocab);
  const std::size_t count = std::min(tokens.size() / length, sequences);
  for (std::size_t i = 0; i < count; ++i) {
    observer.run(std::span(tokens).subspan(i * length, length));
    if (options.progress) options.progress(std::int64_t(i) + 1, std::int64_t(count));
  }
}

/// The run's own tokens, if they are still where they were.
std::string own_data(const Config& config) {
  for (const auto& [name, source] : config.data.sources)
    if (!source.heldout.empty() && is_token_file(source.heldout)) return source.heldout;
  for (const auto& [name, source] : config.data.sources)
    if (is_token_file(source.path)) return source.path;
  fail(
      "input scales need a calibration pass, and the data of the run is not here: name a token file or a "
      "text with --calibrate");
}

}  // namespace

InputAmax calibrate(LoadedModel& model, const CalibrationOptions& options) {
  Observer observer(model);
  const std::string data = options.data.empty() ? own_data(model.config()) : options.data;
  if (is_token_file(data))
    observe_tokens(observer, model, data, options);
  else
    observe_text(observer, model, data, options);
  return observer.take();
}

}  // namespace tetrad
