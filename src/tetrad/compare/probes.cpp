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
#include "tetrad/parallel/agreement.h"
#include "tetrad/plot/run_metrics.h"
#include "tetrad/train/memory_plan.h"
#include "tetrad/train/run_parts.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// A model with the weights in `checkpoint`, and a pass at the beginning of training at the precision of
/// `config`.
struct ProbedArm {
  ProbedArm(const fs::path& checkpoint, const Config& config, Backend& backend)
      : decoder(backend, config.model, microbatch_sequences(config.train), config.train.sequence,
                storage_type(config.precision), plan_memory(config, backend).levers),
        recipe(config.precision, config.model.blocks()) {
    load_weights(checkpoint, decoder);
    pass.recipe = &recipe;
    pass.seed = config.train.rounding_seed();
  }
  ProbedArm(const ProbedArm&) = delete;  // the pass refers to the recipe
  ProbedArm& operator=(const ProbedArm&) = delete;
  ~ProbedArm() = default;

  Decoder decoder;
  Recipe recipe;
  Pass pass;
};

/// Microbatches of held-out tokens that losses are compared on, at most.
constexpr std::int64_t kLossBatches = 8;

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
                                                             std::span<const Config> arms,
                                                             const RunContext& context) {
  Gradients reference;
  std::vector<DeviationSums> of_reference;
  Microbatch batch;
  std::vector<std::string> names = {""};  // of all as one, and of the matrices
  const auto sums_of = [&](const Config& config) {
    ProbedArm arm(checkpoint, config, context.backend);
    differentiate(arm.decoder, arm.pass, batch);
    if (reference.empty()) {
      reference = make_gradients(arm.decoder);
      keep_gradients(arm.decoder, reference);
    }
    const std::vector<DeviationSums> sums = deviations(arm.decoder, reference);
    std::vector<DeviationSums> shown = {sum(sums)};
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const Parameter& parameter = *arm.decoder.parameters()[i];
      if (!parameter.decay) continue;
      shown.push_back(sums[i]);
      if (names.size() < shown.size()) names.push_back(parameter.name);
    }
    return shown;
  };
  together(context.ranks, [&] {
    Dataset dataset = open_dataset(context.backend.threads(), arms[0]);
    batch = next_microbatch(dataset, arms[0].train);
    of_reference = sums_of(arms[0]);  // which each rank needs beside its arms
  });
  const auto lists = dealt_lists(context.ranks, std::ssize(arms), [&](std::int64_t i) {
    std::vector<double> figures;
    for (const DeviationSums& sums : i == 0 ? of_reference : sums_of(arms[static_cast<std::size_t>(i)]))
      figures.insert(figures.end(), {cosine(sums), norm_ratio(sums)});
    return figures;
  });
  std::vector<std::vector<GradientDistance>> result;
  for (const std::vector<double>& figures : lists) {
    std::vector<GradientDistance>& distances = result.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i)
      distances.push_back({names[i], figures.at(2 * i), figures.at(2 * i + 1)});
  }
  return result;
}

std::vector<LossDistance> compare_losses(const fs::path& checkpoint, std::span<const Config> arms,
                                         const RunContext& context) {
  std::vector<Microbatch> batches;
  together(context.ranks, [&] {
    const Dataset dataset = open_dataset(context.backend.threads(), arms[0]);
    for (std::int64_t count = kLossBatches; count > 0 && batches.empty();
         count /= 2)  // few tokens: as many as go
      batches = heldout_microbatches(dataset, arms[0].train, count);
  });
  if (batches.empty()) return {};
  // By arm and sequence.
  const auto losses = dealt_lists(context.ranks, std::ssize(arms), [&](std::int64_t i) {
    const Config& config = arms[static_cast<std::size_t>(i)];
    ProbedArm arm(checkpoint, config, context.backend);
    std::vector<double> of_arm;
    for (const Microbatch& batch : batches) {
      append_sequence_means(token_losses(arm.decoder, arm.pass, batch), config.train.sequence, of_arm);
      ++arm.pass.microbatch;
    }
    return of_arm;
  });
  std::vector<LossDistance> result;
  const auto sequences = static_cast<std::int64_t>(losses[0].size());
  for (const std::vector<double>& of_arm : losses)
    result.push_back({estimate(of_arm).mean, estimate_difference(of_arm, losses[0]), sequences,
                      sequences * arms[0].train.sequence});
  return result;
}

std::optional<Recovery> test_recovery(Config config, const fs::path& folder, const RunContext& context) {
  config.train.steps = kProbeSteps;
  config.train.tokens = 0;
  config.train.checkpoint = {.every = kProbeCheckpoint, .keep = 3};
  config.train.eval.every = 0;
  config.train.health.policy = "skip";
  on_first(context.ranks, [&] { fs::remove_all(folder); });
  const fs::path straight = folder / "straight";
  const fs::path disturbed = folder / "disturbed";
  const fs::path last = fmt::format("checkpoints/step-{}", kProbeSteps);
  Recovery result;

  if (train_in(straight, config, {}, context) == Ending::stopped_by_signal) return std::nullopt;
  on_first(context.ranks, [&] { fs::rename(straight / last, folder / "expected"); });
  if (train_in(straight, config, {}, context) == Ending::stopped_by_signal) return std::nullopt;
  on_first(context.ranks, [&] {
    result.resume_ok = true;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      result.resume_ok &= equal_files(folder / "expected" / file, straight / last / file);
  });
  result.resume = result.resume_ok ? "equal to the bit" : "DIFFERENT from the run without an interruption";

  set_failpoints(fmt::format("train.non_finite=eio@{}", kBadStep));
  const Ending ending = train_in(disturbed, config, {}, context);
  set_failpoints("");
  if (ending == Ending::stopped_by_signal) return std::nullopt;
  on_first(context.ranks, [&] {
    const RunMetrics run = read_run(disturbed);
    const auto skipped = std::ranges::count_if(run.train, &TrainPoint::skipped);
    const bool went_on = ending == Ending::finished && std::isfinite(run.train.back().loss);
    result.nan_ok = went_on && skipped == 1;
    result.nan = went_on ? fmt::format("skipped {} step{}, then went on", skipped, skipped == 1 ? "" : "s")
                         : "the run did not go on";
    fs::remove_all(folder);
  });
  return result;
}

}  // namespace tetrad
