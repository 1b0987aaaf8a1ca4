// SPDX-License-Identifier: Apache-2.0
#include "tetrad/inspect/inspected_run.h"
#include "tetrad/train/memory_plan.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "tetrad/checkpoint/snapshot.h"
#include "tetrad/config/config.h"
#include "tetrad/core/error.h"
#include "tetrad/eval/loaded_model.h"
#include "tetrad/train/run_parts.h"
#include "tetrad/train/schedule.h"

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

}  // namespace

Pass InspectedRun::pass() const {
  Pass pass;
  pass.seed = config.train.rounding_seed();
  pass.step = static_cast<std::uint32_t>(step);
  pass.progress = std::min(1.0, static_cast<double>(step) / static_cast<double>(steps));
  return pass;
}

InspectedRun open_inspected(const std::filesystem::path& path, const std::string& precision,
                            std::int64_t batches, std::int64_t tokens, Backend& backend, Display* display) {
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
  TrainConfig& train = run.config.train;
  train.microbatch =
      std::min(microbatch_sequences(train), std::max<std::int64_t>(1, tokens / train.sequence));
  const RunState state = load_state(run.checkpoint);
  run.step = state.step;
  run.steps = step_count(run.config.train);
  Dataset dataset = open_data(backend.threads(), run.config, state, run.checkpoint);
  for (std::int64_t i = 0; i < batches; ++i)
    run.data.training.push_back(next_microbatch(dataset, run.config.train));
  run.data.heldout = heldout_microbatches(dataset, run.config.train, batches);
  run.decoder = std::make_unique<Decoder>(backend, run.config.model, microbatch_sequences(run.config.train),
                                          run.config.train.sequence, storage_type(run.config.precision),
                                          plan_memory(run.config, backend).levers);
  load_weights(run.checkpoint, *run.decoder);
  return run;
}

}  // namespace tetrad
