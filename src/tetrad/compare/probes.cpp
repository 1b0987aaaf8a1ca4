// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tetrad/checkpoint/snapshot.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/eval/gradients.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/plot/run_metrics.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// A model with the weights in `checkpoint`, with the gradients of a microbatch at the precision of `config`.
std::unique_ptr<Decoder> differentiated(const fs::path& checkpoint, const Config& config,
                                        const Microbatch& batch, Backend& backend) {
  auto decoder = std::make_unique<Decoder>(backend, config.model, microbatch_sequences(config.train),
                                           config.train.sequence, storage_type(config.precision),
                                           recompute_from_name(config.train.recompute));
  load_weights(checkpoint, *decoder);
  const Recipe recipe(config.precision, config.model.blocks());
  Pass pass;
  pass.recipe = &recipe;
  pass.seed = config.train.rounding_seed();
  differentiate(*decoder, pass, batch);
  return decoder;
}

GradientDistance distance(std::string name, const DeviationSums& sums) {
  return {std::move(name), cosine(sums), norm_ratio(sums)};
}

/// The beginning of a run: a checkpoint in the middle and one at the end.
constexpr std::int64_t kProbeSteps = 6;
constexpr std::int64_t kProbeCheckpoint = 3;
constexpr std::int64_t kBadStep = 4;

bool equal_files(const fs::path& a, const fs::path& b) {
  const MappedFile first(a);
  const MappedFile second(b);
  return std::ranges::equal(first.bytes(), second.bytes());
}

}  // namespace

std::vector<std::vector<GradientDistance>> compare_gradients(const fs::path& checkpoint,
                                                             std::span<const Config> arms, Backend& backend) {
  Dataset dataset = open_dataset(backend.threads(), arms[0]);
  const Microbatch batch = next_microbatch(dataset, arms[0].train);
  Gradients reference;
  std::vector<std::vector<GradientDistance>> result;
  for (const Config& arm : arms) {
    const std::unique_ptr<Decoder> decoder = differentiated(checkpoint, arm, batch, backend);
    if (reference.empty()) {
      reference = make_gradients(*decoder);
      keep_gradients(*decoder, reference);
    }
    const std::vector<DeviationSums> sums = deviations(*decoder, reference);
    std::vector<GradientDistance> distances = {distance("", sum(sums))};
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (const Parameter& parameter = *decoder->parameters()[i]; parameter.decay)
        distances.push_back(distance(parameter.name, sums[i]));
    result.push_back(std::move(distances));
  }
  return result;
}

std::optional<Recovery> test_recovery(Config config, const fs::path& folder, const RunContext& context) {
  config.train.steps = kProbeSteps;
  config.train.tokens = 0;
  config.train.checkpoint = {.every = kProbeCheckpoint, .keep = 3};
  config.train.eval.every = 0;
  config.train.health.policy = "skip";
  fs::remove_all(folder);
  const fs::path straight = folder / "straight";
  const fs::path disturbed = folder / "disturbed";
  const fs::path last = fmt::format("checkpoints/step-{}", kProbeSteps);
  Recovery result;

  if (train_in(straight, config, {}, context) == Ending::stopped_by_signal) return std::nullopt;
  fs::rename(straight / last, folder / "expected");
  if (train_in(straight, config, {}, context) == Ending::stopped_by_signal) return std::nullopt;
  result.resume_ok = true;
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    result.resume_ok &= equal_files(folder / "expected" / file, straight / last / file);
  result.resume = result.resume_ok ? "equal to the bit" : "DIFFERENT from the run without an interruption";

  set_failpoints(fmt::format("train.non_finite=eio@{}", kBadStep));
  const Ending ending = train_in(disturbed, config, {}, context);
  set_failpoints("");
  if (ending == Ending::stopped_by_signal) return std::nullopt;
  const RunMetrics run = read_run(disturbed);
  const auto skipped = std::ranges::count_if(run.train, &TrainPoint::skipped);
  const bool went_on = ending == Ending::finished && std::isfinite(run.train.back().loss);
  result.nan_ok = went_on && skipped == 1;
  result.nan = went_on ? fmt::format("skipped {} step{}, then went on", skipped, skipped == 1 ? "" : "s")
                       : "the run did not go on";
  fs::remove_all(folder);
  return result;
}

}  // namespace tetrad
