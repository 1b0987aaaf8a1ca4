// SPDX-License-Identifier: Apache-2.0
#include "tetrad/inspect/inspected_run.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "tetrad/checkpoint/snapshot.h"
#include "tetrad/config/config.h"
#include "tetrad/core/error.h"
#include "tetrad/eval/loaded_model.h"
#include "tetrad/train/trainer.h"

namespace tetrad {
namespace {

/// The data where the run left off.
Dataset open_data(Threads& threads, const Config& config, const RunState& state,
                  const std::filesystem::path& checkpoint) {
  Dataset dataset = open_dataset(threads, config);
  TETRAD_CHECK(state.tokenizer_hash.empty() || dataset.tokenizer_hash().empty() ||
                   state.tokenizer_hash == dataset.tokenizer_hash(),
               "the data was made with another tokenizer ({}) than the one the run began with ({})",
               dataset.tokenizer_hash(), state.tokenizer_hash);
  try {
    dataset.restore(state.data);
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}/state.json cannot be used: {}", checkpoint.string(), error.what()),
                ExitCode::no_checkpoint);
  }
  return dataset;
}

/// Sequences from all held-out tokens, evenly spread and none twice; nothing if there are too few.
std::vector<Microbatch> heldout_batches(const Dataset& dataset, const TrainConfig& train,
                                        std::int64_t batches) {
  std::vector<const TokenSequences*> sources;
  std::int64_t total = 0;
  for (const std::string& name : dataset.source_names()) {
    if (const TokenSequences* source = dataset.heldout(name)) {
      sources.push_back(source);
      total += source->count();
    }
  }
  const std::int64_t rows = std::min(microbatch_sequences(train), total / batches);
  if (rows == 0) return {};
  const auto length = static_cast<std::size_t>(train.sequence);
  std::vector<Microbatch> result(static_cast<std::size_t>(batches));
  for (std::int64_t k = 0; k < batches * rows; ++k) {
    // Neighbours go to different microbatches, so that each has some of every source.
    Microbatch& batch = result[static_cast<std::size_t>(k % batches)];
    std::int64_t index = k * (total / (batches * rows));
    auto source = sources.begin();
    while (index >= (*source)->count()) index -= (*source++)->count();
    const std::size_t begin = batch.inputs.size();
    batch.inputs.resize(begin + length);
    batch.targets.resize(begin + length);
    if (dataset.masks_documents()) batch.document_starts.resize(begin + length);
    (*source)->read(index, std::span(batch.inputs).subspan(begin), std::span(batch.targets).subspan(begin),
                    std::span(batch.document_starts).subspan(dataset.masks_documents() ? begin : 0));
  }
  return result;
}

}  // namespace

Pass InspectedRun::pass() const {
  Pass pass;
  pass.seed = config.train.rounding_seed();
  pass.step = static_cast<std::uint32_t>(step);
  pass.progress = std::min(1.0, static_cast<double>(step) / static_cast<double>(steps));
  return pass;
}

InspectedRun open_inspected(const std::filesystem::path& path, const std::string& precision,
                            std::int64_t batches, Backend& backend, Display* display) {
  InspectedRun run;
  const OpenCheckpoint open = find_checkpoint(path, display);
  run.checkpoint = open.path();
  const std::array files = {(run.checkpoint / "config.yaml").string()};
  run.config = load_config(files, {});
  TETRAD_CHECK(!run.config.data.sources.empty(),
               "{} has no training data to inspect it with, as imported models have none: train from it "
               "(train.from) and inspect that run",
               run.checkpoint.string());
  run.as_trained = precision == "trained";
  run.config.precision = with_precision(run.config.precision, precision);
  validate(run.config);
  const RunState state = load_state(run.checkpoint);
  run.step = state.step;
  run.steps = step_count(run.config.train);
  Dataset dataset = open_data(backend.threads(), run.config, state, run.checkpoint);
  for (std::int64_t i = 0; i < batches; ++i)
    run.data.training.push_back(next_microbatch(dataset, run.config.train));
  run.data.heldout = heldout_batches(dataset, run.config.train, batches);
  run.decoder = std::make_unique<Decoder>(backend, run.config.model, microbatch_sequences(run.config.train),
                                          run.config.train.sequence, storage_type(run.config.precision),
                                          recompute_from_name(run.config.train.recompute));
  load_weights(run.checkpoint, *run.decoder);
  return run;
}

}  // namespace tetrad
